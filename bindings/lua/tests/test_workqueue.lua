-- ipc.workqueue: torch-ipc's own cases with their numbers.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'
local syncline = require 'syncline'

local function count(...) return select('#', ...) end

-- A worker that sends back whatever it is sent, until nil.
local function echo(q)
   while true do
      local item = q:read()
      if item == nil then return 'bye' end
      q:write(item)
   end
end

-- Runs f with a queue at whose other end `n` workers echo.
local function with_workers(n, f, worker, size)
   local q = ipc.workqueue(nil, size)
   local m = ipc.map(n, worker or echo, q)
   f(q)
   for _ = 1, n do q:write(nil) end
   m:join()
   q:close()
end

test('everything plain comes back as it went', function()
   with_workers(1, function(q)
      for _, item in ipairs {
         true, false, 42.13, 42, -1e300, 'text', '', '\0\255\1', { 1, 2, 3 }, {}, { a = 1, b = { c = { 'deep' } }, [7] = 'seven' }, { [1.5] = true },
      } do
         q:write(item)
         equal(q:read(), item)
      end
      if math.type then
         q:write(3)
         equal(math.type(q:read()), 'integer')
         q:write(3.0)
         equal(math.type(q:read()), 'float')
      end
      local nan = 0 / 0
      q:write(nan)
      local got = q:read()
      equal(got ~= got, true)
   end)
end)

test('a table that stands twice arrives as two', function()
   with_workers(1, function(q)
      local twice = { 1 }
      q:write({ twice, twice })
      local got = q:read()
      equal(got, { { 1 }, { 1 } })
      equal(got[1] ~= got[2], true)
   end)
end)

test('functions go as byte code, closures by writeup only', function()
   with_workers(1, function(q)
      q:write(function(x) return x * 2 end)
      equal(q:read()(21), 42)
      q:write({ f = function() return tostring(42) end }) -- globals are those of the receiver
      equal(q:read().f(), '42')
   end)
   with_workers(1, function(q)
      local x, y = 40, { 1, 1 }
      local function closure() return x + y[1] + y[2] end
      raises(function() q:write(closure) end, 'Attempt to serialize closure', 'Consider using ipc.workqueue.writeup() instead.')
      q:writeup(closure)
      equal(q:read(), 42)
      x = 0
      q:writeup({ closure })
      equal(q:read(), 2) -- upvalues are copied when they are sent
   end, function(q)
      while true do
         local item = q:read()
         if item == nil then return end
         q:write(type(item) == 'function' and item() or item[1]())
      end
   end)
end)

test('classes keep their names, where both states know them', function()
   local know = function()
      local class = { metatablename = 'test.Point' }
      class.__index = { sum = function(self) return self.x + self.y end }
      debug.getregistry()['test.Point'] = class
   end
   know()
   local q = ipc.workqueue()
   local m = ipc.map_extended(1, know, function(q)
      local point = q:read()
      point.sum_there = point:sum()
      q:write(point, q:read())
   end, q)
   local class = debug.getregistry()['test.Point']
   q:write(setmetatable({ x = 1, y = 2 }, class), setmetatable({ 1 }, { __index = {} }))
   local point, nameless = q:read(), q:read()
   equal(getmetatable(point) == class, true)
   equal({ point:sum(), point.sum_there }, { 3, 3 })
   equal(getmetatable(nameless), nil) -- a class without a name is forgotten
   m:join()
end)

test('tensors go by reference', function()
   with_workers(1, function(q)
      local t = syncline.DoubleTensor(10):fill(13)
      q:write(t)
      local same = q:read()
      equal(same:sum(), 130)
      same:fill(42)
      equal(t:sum(), 420)
      q:write({ t, { inner = t[1] and t:narrow(1, 2, 3) } })
      local both = q:read()
      both[2].inner:fill(0)
      equal(t:sum(), 420 - 3 * 42)
   end)
end)

test('thirteen items, drained, are all answered', function()
   for _, workers in ipairs { 1, 3 } do
      with_workers(workers, function(q)
         for i = 1, 13 do q:write(i) end
         q:drain()
         local seen = {}
         for i = 1, 13 do
            local item = q:read(true)
            assert(item ~= nil, 'an answer is missing after drain')
            seen[item] = true
            if workers == 1 then equal(item, i) end -- in the order of the questions
         end
         for i = 1, 13 do equal(seen[i], true) end
         equal(count(q:read(true)), 0)
      end)
   end
end)

test('one write of thirteen items', function()
   with_workers(2, function(q)
      q:write(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
      local sum = 0
      for _ = 1, 13 do sum = sum + q:read() end
      equal(sum, 91)
   end)
end)

test('a queue of 16 bytes grows: a hundred items sum to 5050', function()
   with_workers(1, function(q)
      for i = 1, 100 do q:write(i) end
      local sum = 0
      for _ = 1, 100 do sum = sum + q:read() end
      equal(sum, 5050)
   end, echo, 16)
end)

test('the first who opens a name made it', function()
   local q, creator = ipc.workqueue('a name')
   equal(creator, 1)
   local same, again = ipc.workqueue('a name', 1000, 1000)
   equal(again, 0)
   local m = ipc.map(1, function()
      local q, creator = require('libipc').workqueue('a name')
      q:write(q:read() + 1)
      return creator
   end)
   q:write(41)
   equal(same:read(), 42)
   equal(m:join(), 0)
   q:close()
   same:close()
   local _, anew = ipc.workqueue('a name')
   equal(anew, 1) -- it ended with its last handle
   local _, anonymous = ipc.workqueue()
   equal(anonymous, 1)
end)

test('nil is an item, and nothing is nothing', function()
   local q = ipc.workqueue()
   equal(count(q:read(true)), 0)
   local m = ipc.map(1, function(q) q:write(nil, 1) return (q:read()) end, q)
   equal({ count(q:read()), q:read() }, { 1, 1 })
   q:write('done')
   equal(m:join(), 'done')
end)

test('only the owner drains', function()
   local q = ipc.workqueue()
   local m = ipc.map(1, function(q) return pcall(q.drain, q) end, q)
   local ok, why = m:join()
   equal(ok, false)
   assert(why:find('workqueue drain is only available on the owner thread', 1, true), why)
end)

test('a queue that is closed says so', function()
   local q = ipc.workqueue()
   equal(count(q:close()), 0)
   raises(function() q:write(1) end, 'workqueue is not open')
   raises(function() q:writeup(1) end, 'workqueue is not open')
   raises(function() q:read() end, 'workqueue is not open')
   raises(function() q:read(true) end, 'workqueue is not open')
   raises(function() q:drain() end, 'workqueue is not open')
   raises(function() q:close() end, 'workqueue is already closed')
   raises(function() ipc.map(1, echo, q) end, 'workqueue is not open')
end)

test('what cannot be sent is refused, and nothing of the call is written', function()
   local q = ipc.workqueue()
   raises(function() q:write(1, coroutine.create(function() end)) end, 'Operation not permitted')
   raises(function() q:write(io.stdout) end, 'Invalid argument')
   raises(function() q:write(print) end, 'attempt to persist a C function')
   if debug.upvalueid then
      local up
      raises(function() q:write(debug.upvalueid(function() return up end, 1)) end, 'Operation not permitted') -- a light userdata
   end
   local cyclic = {}
   cyclic[1] = cyclic
   raises(function() q:write(cyclic) end, 'does it contain itself?')
   equal(ipc.map(1, function(q) return select('#', q:read(true)) end, q):join(), 0)
end)

test('queues and channels go through queues', function()
   with_workers(1, function(q)
      local channel, inner = ipc.channel(), ipc.workqueue()
      q:write(channel, inner)
      local same, queue = q:read(), q:read()
      same:write('through')
      equal({ channel:read() }, { ipc.channel.OPEN, 'through' })
      equal(tostring(queue), 'ipc.workqueue')
      queue:close()
      inner:write(1) -- handles are closed one by one
   end)
end)

test('many workers share the work', function()
   with_workers(4, function(q)
      for i = 1, 2000 do q:write(i) end
      local sum = 0
      for _ = 1, 2000 do sum = sum + q:read() end
      equal(sum, 2000 * 2001 / 2)
   end)
end)

harness.finish()
