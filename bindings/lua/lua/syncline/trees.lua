--- Trees: nodes, numbered from 1, that combine what they have. All make the same calls in the same order.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local adapter = require 'syncline.torch'
local tensor = require 'syncline.tensor'
local walkTable = require('ipc.utils').walkTable
raise.mark()

local call = raise.family(native, 'tree_')

local trees = { call = call }

-- What a leaf is, so that nodes that pass different things hear of it.
local function described(leaf)
   if not adapter.is_tensor(leaf) then return type(leaf) end
   local numbers = tensor.is(leaf) and leaf or adapter.open(leaf)
   return numbers:type() .. ' ' .. table.concat(numbers:size(), 'x')
end

local whole = math.tointeger or function() return nil end

-- The result for a leaf: numbers go into the tensor that was given, anything else takes its place.
local function settled(leaf, result)
   if adapter.is_tensor(leaf) and adapter.is_tensor(result) then return adapter.pour(result, leaf) end
   if math.type and math.type(leaf) == 'integer' then return whole(result) or result end
   return result
end

-- One round by an operation with a name: tensors where they lie, lone numbers in a tensor of one.
local function by_name(tree, leaves, paths, op, contributes)
   local work, backs = {}, {}
   for i, leaf in ipairs(leaves) do
      if type(leaf) == 'number' then
         work[i] = tensor.new('float64', { leaf })
      else
         work[i], backs[i] = adapter.target(leaf)
      end
   end
   local contributors = call.all_reduce(tree, work, paths, op, contributes, raise.site())
   local results = {}
   for i, leaf in ipairs(leaves) do
      if backs[i] then results[i] = backs[i]() else results[i] = settled(leaf, work[i][1]) end
   end
   return results, contributors
end

-- One round by a function: it sees copies, and what it makes of them is brought back.
local function by_function(tree, leaves, paths, reduce, contributes)
   local words = {}
   for i, leaf in ipairs(leaves) do words[i] = paths[i] .. '=' .. described(leaf) end
   local folded, contributors = call.fold(tree, leaves, #leaves, table.concat(words, ';'), reduce, contributes, raise.site())
   for i, leaf in ipairs(leaves) do folded[i] = settled(leaf, folded[i]) end
   return folded, contributors
end

local function round(tree, value, reduce, zero)
   local leaves, paths = {}, {}
   local function collect(leaf, path)
      local index = #leaves + 1
      local made
      if zero then made = zero(leaf, index) end
      if made == nil then made = leaf end
      leaves[index], paths[index] = made, path
   end
   walkTable(value, collect)
   local way = type(reduce) == 'string' and by_name or by_function
   local results, contributors = way(tree, leaves, paths, reduce, zero == nil)
   local index = 0
   local result = walkTable(value, function()
      index = index + 1
      return results[index]
   end)
   return result, contributors
end

-- Values of `received` into the tensors of `own`, wherever these can take them.
local function poured(own, received)
   if adapter.is_tensor(received) then
      if adapter.is_tensor(own) and described(own) == described(received) then return adapter.pour(received, own) end
      return received
   end
   if type(received) ~= 'table' or type(own) ~= 'table' or adapter.is_tensor(own) then return received end
   for key, item in pairs(received) do received[key] = poured(own[key], item) end
   return received
end

--- The table of functions that torch-ipc's constructors return, over a native tree.
function trees.of(tree)
   local node, nodes, gpu = call.place(tree)
   local last
   local self = { nodeIndex = node, numNodes = nodes, gpu = gpu, walkTable = walkTable }

   --- Combines `value`, a leaf or nested tables of leaves, over all nodes; returns it and how many nodes had data.
   -- `reduce(mine, received)` is called once per leaf and child, nil keeps mine; or 'sum', 'mean', 'min', 'max', 'prod'. With
   -- `zero` this node has no more data: each leaf becomes zero(leaf, index), until nobody has data left.
   function self.allReduce(value, reduce, zero)
      reduce = reduce or 'sum'
      if type(reduce) ~= 'string' then raise.expect(reduce, 'function', 'allReduce(value, reduce)') end
      if zero == nil then
         if value == nil then raise.error('ArgumentError: allReduce: there is no value') end
         local result, contributors = round(tree, value, reduce)
         last = result
         return result, contributors
      end
      raise.expect(zero, 'function', 'allReduce(value, reduce, zero)')
      if value == nil or (type(value) == 'table' and not adapter.is_tensor(value) and value[1] == nil) then value = last end
      if value == nil then raise.error('ArgumentError: allReduce: no value, and no earlier call whose value would do') end
      while true do
         local result, contributors = round(tree, value, reduce, zero)
         if contributors == 0 then return result, 0 end
      end
   end

   --- Node 1's value for everybody, in place for tensors.
   function self.scatter(value)
      local received = call.broadcast(tree, value, 1, raise.site())
      if node == 1 then return value end
      return poured(value, received)
   end

   --- The value of node `root` (1) for everybody.
   function self.broadcast(value, root)
      root = root or 1
      local received = call.broadcast(tree, value, root, raise.site())
      if node == root then return value end
      return poured(value, received)
   end

   --- Everybody's values at node `root` (1), by node; nil elsewhere.
   function self.gather(value, root) return call.gather(tree, value, root or 1, raise.site()) end
   --- Everybody's values, by node.
   function self.allGather(value) return call.all_gather(tree, value, raise.site()) end
   --- Sends item i to node i, and returns what each node sent here.
   function self.allToAll(values) return call.all_to_all(tree, values, raise.site()) end
   --- Combines a tensor by 'sum', 'mean', 'min', 'max' or 'prod' and returns this node's equal part of its numbers, a new tensor; the first nodes
   -- take the remainder.
   function self.reduceScatter(value, op) return call.reduce_scatter(tree, value, op or 'sum', raise.site()) end
   --- Returns when every node has called it.
   function self.barrier() call.barrier(tree, raise.site()) end

   --- Prints what went over the network, by node, and returns it; inside a host nothing does.
   function self.netStats()
      local stats = call.net_stats(tree)
      for peer, both in pairs(stats) do
         print(('node %d: sent %d bytes in %.3f s, received %d bytes in %.3f s'):format(
            peer, both.tx.num_bytes, both.tx.total_seconds, both.rx.num_bytes, both.rx.total_seconds))
      end
      return stats
   end

   --- Leaves the tree's own job; a tree that nobody refers to does the same.
   function self.close() call.close(tree) end

   return self
end

return trees
