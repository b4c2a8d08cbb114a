-- Trees of one host, as torch-ipc's tests have them: each process of `syncline run` is a node. Runs alone and with any number.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'
local syncline = require 'syncline'
local Tree, LocalhostTree, NullTree = require 'ipc.Tree', require 'ipc.LocalhostTree', require 'ipc.NullTree'
local StaticTree, DiscoveredTree = require 'ipc.StaticTree', require 'ipc.DiscoveredTree'

local nodes = tonumber(os.getenv('SYNCLINE_WORLD_SIZE') or 1)
local node = tonumber(os.getenv('SYNCLINE_RANK') or 0) + 1
local all = nodes * (nodes + 1) / 2
local keys = 0

local function key()
   keys = keys + 1
   return ipc.getppid() * 32 + keys
end

local function add(a, b) return a + b end
local function add_tensors(a, b) return a:add(b) end

test('a tree of one gives back what it was given', function()
   local tree = NullTree()
   equal({ tree.nodeIndex, tree.numNodes }, { 1, 1 })
   equal({ tree.allReduce(5, add) }, { 5, 1 })
   equal(tree.scatter('x'), 'x')
   tree.netStats()
   equal(LocalhostTree(1, 1).numNodes, 1)
   equal(StaticTree(1, 1, 'localhost', 0, 'localhost', 0).numNodes, 1)
   equal(DiscoveredTree(1, 1, 'localhost', 0).numNodes, 1)
   equal(Tree(1, 1, 2).numNodes, 1)
end)

test('nodes that were told their parent on the command line know it as text', function()
   local told = LocalhostTree(node, nodes, ('%d'):format(key()))
   equal({ told.allReduce(node, add) }, { all, nodes })
   told.close()
   raises(function() LocalhostTree(node, nodes, 'parent') end, 'ArgumentError')
end)

local tree = LocalhostTree(node, nodes, key())

test('numbers, arrays and nested tables', function()
   equal({ tree.nodeIndex, tree.numNodes }, { node, nodes })
   equal({ tree.allReduce(node, add) }, { all, nodes })
   equal({ tree.allReduce({ node, 2 * node }, add) }, { { all, 2 * all }, nodes })
   local value = tree.allReduce({ b = { x = node, y = 0.5 }, a = 1 }, add)
   equal(value, { b = { x = all, y = 0.5 * nodes }, a = nodes })
   equal(tree.allReduce('x', function(a, b) return a .. b end), ('x'):rep(nodes))
   equal(tree.allReduce(node, math.max), nodes)
end)

test('tensors are reduced in place, by a function or by name', function()
   local t = syncline.FloatTensor(10):fill(node)
   local result, contributors = tree.allReduce(t, add_tensors)
   equal(result == t, true)
   equal({ t:sum(), contributors }, { all * 10, nodes })
   t:fill(node)
   tree.allReduce(t, function(a, b) a:add(b) end) -- a result of nil keeps mine
   equal(t:sum(), all * 10)
   local two = { syncline.DoubleTensor(10):fill(node), syncline.IntTensor(10):fill(node - 1) }
   tree.allReduce(two, 'sum')
   equal({ two[1]:sum(), two[2]:sum() }, { all * 10, (all - nodes) * 10 })
   equal(tree.allReduce({ node, x = nil }, 'mean'), { all / nodes })
   local matrix = syncline.FloatTensor(2, 3):fill(1)
   tree.allReduce(matrix[2], 'sum')
   equal(matrix:totable(), { { 1, 1, 1 }, { nodes, nodes, nodes } })
end)

test('uneven steps: node k calls k times, then once with zero', function()
   local function zero() return 0 end
   local sum = 0
   for _ = 1, node do sum = sum + tree.allReduce(node, add) end
   local _, contributors = tree.allReduce(node, add, zero)
   equal(contributors, 0)
   -- Node k is in the first k rounds.
   local wanted = 0
   for round = 1, node do
      for other = round, nodes do wanted = wanted + other end
   end
   equal(sum, wanted)
   if nodes == 4 then equal(sum, ({ 10, 19, 26, 30 })[node]) end
   local asked = {}
   tree.allReduce({ node, { 2 * node } }, add, function(leaf, index) asked[index] = leaf return 0 end)
   equal(asked, { node, 2 * node }) -- leaf by leaf, with its place
   local t = syncline.FloatTensor(3):fill(1)
   tree.allReduce({ t }, add_tensors)
   equal(select(2, tree.allReduce(nil, add_tensors, function(leaf) return leaf:zero() end)), 0) -- the last value again
   equal(t:sum(), 0)
end)

test('scatter gives everybody the value of node 1', function()
   equal(tree.scatter(node), 1)
   local t = syncline.FloatTensor(4):fill(node)
   local got = tree.scatter({ t, name = 'of ' .. node })
   equal(got.name, 'of 1')
   equal(got[1] == t, true)
   equal(t:sum(), 4)
end)

test('broadcast, gather, allGather, allToAll, barrier', function()
   equal(tree.broadcast({ node }, nodes), { nodes })
   local everybody, sent = {}, {}
   for i = 1, nodes do everybody[i], sent[i] = { i }, node .. '>' .. i end
   equal(tree.allGather({ node }), everybody)
   local gathered = tree.gather({ node }, 1)
   if node == 1 then equal(gathered, everybody) else equal(gathered, nil) end
   for i, message in ipairs(tree.allToAll(sent)) do equal(message, i .. '>' .. node) end
   tree.barrier()
   equal(type(tree.netStats()), 'table')
end)

test('reduceScatter gives each node its part, the first ones the remainder', function()
   local given = syncline.DoubleTensor(2, nodes)
   for i = 1, 2 do for k = 1, nodes do given[i][k] = 10 * i + k end end
   local part = tree.reduceScatter(given)
   local flat = given:view(2 * nodes)
   equal(part:totable(), { nodes * flat[2 * node - 1], nodes * flat[2 * node] })
   equal(given[1][1], 11) -- what was given is as it was
   equal(tree.reduceScatter(syncline.LongTensor({ node }), 'max'):totable(), node == 1 and { nodes } or {})
   raises(function() tree.reduceScatter({ 1, 2 }) end, 'no tensor', 'test_trees.lua:')
   raises(function() tree.reduceScatter(given, 'average') end, 'average')
end)

test('walkTable visits leaves in the order that all nodes share', function()
   local seen = {}
   local t = require('ipc.utils').walkTable({ b = 2, a = { 1, 5 } }, function(leaf)
      seen[#seen + 1] = leaf
      if leaf == 2 then return 20 end
   end)
   equal(seen, { 1, 5, 2 })
   equal(t, { b = 20, a = { 1, 5 } })
   raises(function() tree.walkTable({ 1, x = 2 }, print) end, 'order')
end)

test('bad calls raise with facts and harm nobody', function()
   raises(function() tree.allReduce() end, 'no value', 'test_trees.lua:')
   raises(function() tree.allReduce(1, 5) end, 'function')
   raises(function() tree.allReduce(1, 'average') end, 'average')
   raises(function() tree.allReduce(print, add) end, 'functions do not travel')
   raises(function() tree.broadcast(1, nodes + 1) end)
   raises(function() LocalhostTree(0, 2) end)
   raises(function() LocalhostTree(3, 2) end)
   raises(function() LocalhostTree('one', 2) end, 'number')
   raises(function() Tree(1, 2, 1) end, 'base')
   local began = os.time()
   raises(function() DiscoveredTree(1, 2, '127.0.0.1', 0, function() error('nowhere to leave it') end, print) end, 'nowhere to leave it')
   assert(os.time() - began < 10, 'who could not publish waits for nobody')
   equal(tree.allReduce(node, add), all)
end)

test('what a reducer raises is what the caller sees', function()
   if nodes > 1 then
      local lone = LocalhostTree(node, nodes, key())
      local ok, words = pcall(lone.allReduce, node, function() error('no such sum') end)
      equal(ok, false)
      -- The node whose function failed says so; the others hear of it.
      equal(type(words), 'string')
      lone.close()
   end
end)

test('values that differ in structure name both lines', function()
   if nodes > 1 then
      local lone = LocalhostTree(node, nodes, key())
      raises(function() lone.allReduce(node == 1 and { 1 } or { 1, 2 }, add) end, 'ContractMismatch', 'test_trees.lua:')
      lone.close()
   end
end)

for _, base in ipairs { 2, 4, 8 } do
   test('a tree of base ' .. base .. ' over server and clients', function()
      local place = ('unix:@lua-trees-%d-%d'):format(ipc.getppid(), base)
      local server, client
      if node == 1 then server = ipc.server(place, 0) else client = ipc.client(place, 0) end
      local other = Tree(base == 8 and node > 1 and nil or node, nodes, base, server, client, '127.0.0.1')
      equal(other.numNodes, nodes)
      local t = syncline.FloatTensor(10):fill(other.nodeIndex)
      other.allReduce(t, add_tensors)
      equal(t:sum(), all * 10)
      other.barrier()
      other.close()
   end)
end

test('a tree whose nodes are told where to meet', function()
   local host, port
   if node == 1 then
      local server, chosen = ipc.server() -- a port that is free
      server:close()
      port = chosen
   end
   port = tree.broadcast(port, 1)
   host = '127.0.0.1'
   local static = StaticTree(node, nodes, host, node == 1 and port or 0, host, port)
   equal(static.allReduce(node, add), all)
   static.close()
   local file = (os.getenv('TMPDIR') or '/tmp') .. '/lua-discovered-' .. ipc.getppid()
   local function publish(where, at)
      local out = assert(io.open(file .. '.new', 'w'))
      out:write(where, ' ', at)
      out:close()
      assert(os.rename(file .. '.new', file))
   end
   local function query()
      local found = io.open(file)
      if not found then return nil end
      local where, at = found:read('*a'):match('(%S+) (%d+)')
      found:close()
      return where, tonumber(at)
   end
   local discovered = DiscoveredTree(node, nodes, host, 0, publish, query)
   equal(discovered.allReduce(node, add), all)
   discovered.close()
   tree.barrier()
   if node == 1 then os.remove(file) end
   if nodes > 1 then
      raises(function() DiscoveredTree(2, 3, host, 0, publish, function() error('nobody knows') end) end, 'nobody knows')
   end
end)

tree.close()
harness.finish()
