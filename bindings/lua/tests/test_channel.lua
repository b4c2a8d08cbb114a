-- ipc.channel: torch-ipc's own cases with their numbers.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'

local OPEN, CLOSED, DRAINED = ipc.channel.OPEN, ipc.channel.CLOSED, ipc.channel.DRAINED
local function count(...) return select('#', ...) end

test('the statuses are numbers', function() equal({ OPEN, CLOSED, DRAINED }, { 0, 1, 2 }) end)

test('ten and nil, then nothing', function()
   local c = ipc.channel()
   equal(c:num_items(), 0)
   equal(c:write(10, nil), OPEN)
   equal(c:num_items(), 2)
   local status, item = c:read()
   equal({ status, item }, { OPEN, 10 })
   equal({ count(c:read()), c:num_items() }, { 2, 0 })
   equal({ c:read(true) }, { OPEN }) -- nothing there: the status alone
end)

test('twelve at once', function()
   local c = ipc.channel()
   equal(c:write(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), OPEN)
   for i = 1, 12 do equal({ c:read() }, { OPEN, i }) end
   equal(c:num_items(), 0)
end)

test('a closed channel can be read to its end', function()
   local c = ipc.channel()
   c:write(1, 2)
   equal({ c:closed(), c:drained() }, { false, false })
   equal(count(c:close()), 0)
   c:close() -- again changes nothing
   equal({ c:closed(), c:drained() }, { true, false })
   equal(c:write(3), CLOSED)
   equal({ c:read() }, { CLOSED, 1 })
   equal({ c:read(true) }, { CLOSED, 2 })
   equal({ c:closed(), c:drained() }, { true, true })
   equal({ c:read() }, { DRAINED })
   equal({ c:read(true) }, { DRAINED })
   equal(c:write(3), DRAINED)
end)

test('an empty channel that is closed is drained at once', function()
   local c = ipc.channel()
   c:close()
   equal({ c:drained(), (c:read()) }, { true, DRAINED })
end)

test('ten readers that wait are woken by a close', function()
   local c, ready = ipc.channel(), ipc.channel()
   local m = ipc.map(10, function(c, ready)
      ready:write(true)
      return (c:read())
   end, c, ready)
   for _ = 1, 10 do ready:read() end
   c:close()
   equal({ m:join() }, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 })
end)

test('ten generators of a hundred items through five workers', function()
   local questions, answers = ipc.channel(), ipc.channel()
   local generators = ipc.map(10, function(q) for i = 1, 100 do q:write(i) end end, questions)
   local workers = ipc.map(5, function(q, a)
      while true do
         local status, item = q:read()
         if status == 2 then return end
         a:write(item)
      end
   end, questions, answers)
   generators:join()
   questions:close()
   workers:join()
   answers:close()
   equal(answers:num_items(), 1000)
   local seen = {}
   while true do
      local status, item = answers:read()
      if status == DRAINED then break end
      seen[item] = (seen[item] or 0) + 1
   end
   for i = 1, 100 do equal(seen[i], 10) end
end)

test('ping ten times, pong ten times', function()
   local ping, pong = ipc.channel(), ipc.channel()
   local m = ipc.map(1, function(ping, pong)
      while true do
         local status, item = ping:read()
         if status == 2 then break end
         assert(item == 'ping')
         pong:write('pong')
      end
      pong:close()
   end, ping, pong)
   for _ = 1, 10 do
      ping:write('ping')
      equal({ pong:read() }, { OPEN, 'pong' })
   end
   ping:close()
   m:join()
   equal({ pong:read() }, { DRAINED })
end)

test('channels go through channels, and keep what is in them', function()
   local outer = ipc.channel()
   do
      local inner = ipc.channel()
      inner:write('kept')
      outer:write(inner)
   end
   collectgarbage()
   collectgarbage()
   local _, inner = outer:read()
   equal({ inner:read() }, { OPEN, 'kept' })
end)

test('a capacity makes writers wait for readers', function()
   local c = ipc.channel(2)
   local m = ipc.map(1, function(c) for i = 1, 50 do c:write(i) end c:close() end, c)
   local sum = 0
   while true do
      local status, item = c:read()
      if status == DRAINED then break end
      assert(c:num_items() <= 2)
      sum = sum + item
   end
   m:join()
   equal(sum, 1275)
   raises(function() ipc.channel(0) end, 'capacity')
end)

test('what cannot be sent is refused', function()
   local c, up = ipc.channel(), 1
   raises(function() c:write(function() return up end) end, 'Attempt to serialize closure')
   raises(function() c:write(1, coroutine.create(function() end)) end, 'Operation not permitted')
   equal(c:num_items(), 0) -- nothing of such a call is written
end)

harness.finish()
