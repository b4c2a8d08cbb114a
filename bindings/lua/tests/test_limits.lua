-- Nothing leaks over a hundred thousand calls, and no argument whatever ends the interpreter.

local harness = require 'harness'
local test, equal = harness.test, harness.equal
local mv = require 'multiverso'
local ipc = require 'libipc'
local syncline = require 'syncline'

mv.init()

-- Kilobytes that this process has in memory.
local function resident()
   local file = assert(io.open('/proc/self/statm'))
   local pages = tonumber((file:read('*a'):match('%d+ (%d+)')))
   file:close()
   return pages * 4
end

local function settled()
   collectgarbage()
   collectgarbage()
   return collectgarbage('count'), resident()
end

-- Runs f many times and then many times more: what the first leaves behind may stay, the second must leave nothing.
local function leaks_nothing(name, times, f)
   test(name .. ' leaves nothing behind', function()
      for i = 1, times / 5 do f(i) end
      local lua_before, resident_before = settled()
      for i = 1, times do f(i) end
      local lua_after, resident_after = settled()
      -- One object of 16 bytes per call would be 1600 KB.
      assert(lua_after - lua_before < 100, ('Lua holds %.0f KB more'):format(lua_after - lua_before))
      assert(resident_after - resident_before < 1500, ('the process holds %.0f KB more'):format(resident_after - resident_before))
   end)
end

local handler = mv.ArrayTableHandler:new(16)
local delta, out, as_table = syncline.FloatTensor(16):fill(1), syncline.FloatTensor(16), {}
for i = 1, 16 do as_table[i] = 0 end
local tree = require('ipc.NullTree')()
local job = syncline.tree()
local server, port = ipc.server()
local client = ipc.client(port)

leaks_nothing('adding a tensor and getting into one', 100000, function() handler:add(delta) handler:get(out) end)
leaks_nothing('adding a table and getting a new tensor', 100000, function() handler:add(as_table) return handler:get()[3] end)
leaks_nothing('a call that fails', 100000, function() pcall(handler.add, handler, { 1 }) end)
leaks_nothing('reducing', 100000, function()
   tree.allReduce(1, math.max)
   job.allReduce({ 1, delta }, 'max')
end)
leaks_nothing('sending and receiving', 20000, function(i)
   client:send({ i, name = 'x' })
   server:recvAny()
end)
leaks_nothing('making and indexing tensors', 100000, function() return syncline.FloatTensor(2, 3)[2]:sum() end)

test('the table holds what was added, not more', function()
   equal(handler:get()[1], 120000)
end)

-- Arguments that nobody should pass.
local closed_server = ipc.server()
closed_server:close()
local strange = {
   false, true, 0, -1, 1, 3, 0.5, 2 ^ 53, -2 ^ 63, 1e308, 0 / 0, 1 / 0, '', 'x', '\0\255', ('long'):rep(1000), {}, { 1, 2, 3 }, { {} },
   { a = 1 }, tostring, function() end, coroutine.create(function() end), io.stdout, delta, out, handler, client, server, closed_server, tree,
   setmetatable({}, { __index = function() error('no') end }),
}
local seed = 42
local function chance(n)
   seed = (seed * 16807) % 2147483647
   return seed % n + 1
end
local function any()
   local index = chance(#strange + 2)
   return strange[index] -- sometimes nil
end

local function fuzz(name, f, first)
   test('no argument of ' .. name .. ' ends the interpreter', function()
      for _ = 1, 300 do
         local arguments = { any(), any(), any(), any() }
         local ok, words = pcall(f, first == nil and arguments[4] or first, (table.unpack or unpack)(arguments, 1, chance(4)))
         if not ok then assert(type(words) == 'string' or words ~= nil) end
      end
   end)
end

for _, name in ipairs { 'size', 'fill', 'add', 'mul', 'copy', 'view', 'select', 'narrow', 'string', 'type', 'totable', 'sum' } do
   local t = syncline.FloatTensor(2, 3)
   fuzz('tensor:' .. name, t[name], t)
   fuzz('tensor.' .. name .. ' of something else', t[name])
end
local fuzzed = mv.MatrixTableHandler:new(3, 2)
for _, name in ipairs { 'add', 'get' } do
   fuzz('table:' .. name, fuzzed[name], fuzzed)
   fuzz('table.' .. name .. ' of something else', fuzzed[name])
end
for _, name in ipairs { 'send', 'close' } do fuzz('client.' .. name .. ' of something else', client[name], false) end
fuzz('client:send', client.send, client)
fuzz('server:broadcast', closed_server.broadcast, closed_server)
fuzz('server:clients', closed_server.clients, closed_server)
fuzz('server:recvAny', closed_server.recvAny, closed_server)
for _, name in ipairs { 'allReduce', 'scatter', 'broadcast', 'gather', 'allGather', 'allToAll', 'walkTable' } do
   fuzz('tree.' .. name, function(_, ...) return tree[name](...) end, false)
end
fuzz('aggregate', function(_, ...) return syncline.aggregate(...) end, false)
fuzz('Tensor', function(_, ...) return syncline.Tensor('float32', ...) end, false)

test('after all of it the job still works', function()
   mv.barrier()
   equal(#handler:get(), 16)
end)

mv.shutdown()
harness.finish()
