-- Finalisers that raise: calls go on or raise a string, what raised was not done, and the memory of tensors still comes back.
--
-- Lua 5.1 and LuaJIT raise what a finaliser raised out of whichever call happened to collect; 5.4 only warns.

-- LuaJIT up to the beginning of 2023 (Debian's, too) crashes where a finaliser raises on the way out of a compiled trace, with no library
-- loaded at all (its pull request 946). What is to be seen here is this library, so nothing is compiled.
if rawget(_G, 'jit') then jit.off() end

local harness = require 'harness'
local test, equal = harness.test, harness.equal
local mv = require 'multiverso'
local ipc = require 'libipc'
local syncline = require 'syncline'
local limits = require 'limits'

local function raising() error('a finaliser raised') end

-- Garbage whose finaliser raises.
local function litter()
   if rawget(_G, 'newproxy') then
      getmetatable(newproxy(true)).__gc = raising
   else
      setmetatable({}, { __gc = raising })
   end
end

-- Collects until no finaliser is left that could raise. A cycle that one has cut short goes on by steps, which begin no new one.
local function tidied()
   while not pcall(collectgarbage) do
      repeat local ok, ended = pcall(collectgarbage, 'step', 0) until ok and ended
   end
end

-- Calls f(i) often with garbage before each call, in this thread and in a coroutine. Nothing but these two may allocate between them: what is
-- not inside a pcall would be raised out of the test.
local function amid_litter(times, f)
   tidied()
   local strange
   local function rounds()
      for i = 1, times do
         for _ = 1, 3 do pcall(litter) end
         local ok, words = pcall(f, i)
         if not ok and type(words) ~= 'string' then strange = words end
      end
   end
   rounds()
   tidied()
   local thread = coroutine.create(rounds)
   local ok, words = coroutine.resume(thread)
   tidied()
   assert(ok, words)
   if strange ~= nil then error('an error that is a ' .. type(strange) .. ': ' .. tostring(strange)) end
end

mv.init()

local handler = mv.ArrayTableHandler:new(16)
local matrix = mv.MatrixTableHandler:new(3, 2)
local delta, out = syncline.FloatTensor(16):fill(1), syncline.FloatTensor(16)
local numbers, rows, ids = {}, { 1, 2, 3, 4 }, { 0, 2 }
for i = 1, 16 do numbers[i] = 1 end
local tree, job = require('ipc.NullTree')(), syncline.tree()
local server, port = ipc.server()
local client = ipc.client(port)
local channel, queue, shared, mutex = ipc.channel(), ipc.workqueue(), ipc.sharedtable(), ipc.mutex()
local marshal = ipc.marshal { 1, 'two', { 3 } }

for name, f in pairs {
   ['getting a new tensor'] = function() return handler:get() end,
   ['getting into a tensor'] = function() handler:get(out) end,
   ['getting rows'] = function() return matrix:get(ids) end,
   ['adding a table of numbers'] = function() handler:add(numbers, true) end,
   ['adding rows'] = function() matrix:add(rows, ids) end,
   ['an add that fails'] = function() handler:add(rows) end,
   ['an add of nothing'] = function() handler:add() end,
   ['making tensors'] = function() return syncline.FloatTensor(2, 3)[2]:clone():fill(1):totable() end,
   ['reducing'] = function() return tree.allReduce({ 1, delta }, math.max), job.allReduce({ 1, delta }, 'max') end,
   ['messages'] = function(i)
      client:send({ i, name = 'x' })
      server:recvAny()
   end,
   ['channels'] = function(i) return channel:write(i, { 'x', delta }), channel:read(true), channel:read(true) end,
   ['queues'] = function() queue:write({ 'x', delta }, function() end) end,
   ['shared tables'] = function(i) shared[i % 7] = { i, delta } return shared[i % 7], #shared end,
   ['marshalling'] = function() return marshal:read(), ipc.marshal({ delta, function() end }):read() end,
   ['locks'] = function() mutex:lock() mutex:unlock() end,
   ['keys'] = function() return syncline.is_tensor(delta), delta:size(), delta:type(), tostring(delta) end,
   ['facts'] = function() return mv.num_workers(), mv.worker_id(), mv.last_error() end,
} do
   test(name .. ' amid finalisers that raise', function() amid_litter(1500, f) end)
end

test('an add that raised was not done, and one that did not was', function()
   local counted, ones = mv.ArrayTableHandler:new(16), syncline.FloatTensor(16):fill(1)
   local added = 0
   tidied()
   for i = 1, 4000 do
      for _ = 1, 3 do pcall(litter) end
      if pcall(counted.add, counted, i % 2 == 0 and ones or numbers, i % 3 == 0) then added = added + 1 end
   end
   tidied()
   equal(counted:get()[1], added)
end)

test('tensors of a megabyte behind finalisers that raise do not fill memory', function()
   local large, before, most = mv.ArrayTableHandler:new(262144), limits.resident(), 0
   for _ = 1, 600 do
      for _ = 1, 3 do pcall(litter) end
      pcall(large.get, large)
      local ok, now = pcall(limits.resident)
      if ok then most = math.max(most, now - before) end
   end
   tidied()
   assert(most < 128 * 1024, ('the process held %.0f MB more'):format(most / 1024))
end)

test('a thread whose state ends with finalisers that raise has its results', function()
   local m = ipc.map(3, function(id)
      kept = {}
      for i = 1, 300 do
         kept[i] = rawget(_G, 'newproxy') and newproxy(true) or setmetatable({}, { __gc = true })
         getmetatable(kept[i]).__gc = function() error('a finaliser raised') end
      end
      return id
   end)
   equal({ m:join() }, { 1, 2, 3 })
end)

mv.shutdown()
harness.finish()
