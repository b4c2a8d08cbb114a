-- ipc.BackgroundTask and ipc.BackgroundTaskPool: torch-ipc's own cases with their numbers.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'
local BackgroundTask = require 'ipc.BackgroundTask'
local BackgroundTaskPool = require 'ipc.BackgroundTaskPool'

local function count(...) return select('#', ...) end

test("results 'done!', 42, true", function()
   local task = BackgroundTask(function() return 'done!', 42, true end)
   equal({ task.getResult() }, { 'done!', 42, true })
   equal(count(task.getResult()), 0) -- once
   equal(task.isDone(), true)
   equal(BackgroundTask(function(x) return x end, 'as documented').getResults(), 'as documented')
end)

test('polled while it works', function()
   local task = BackgroundTask(function() require('libipc').spawn({ file = 'sleep', args = { '1.3' } }):wait() return 1 end)
   local polls = 0
   while not task.isDone() do
      polls = polls + 1
      ipc.spawn({ file = 'sleep', args = { '.1' } }):wait()
   end
   assert(polls > 4 and polls < 16, polls) -- nine and more on a machine that has nothing else to do
   equal(task.getResult(), 1)
end)

test('no result is nil', function()
   local task = BackgroundTask(function() end)
   equal(task.getResult(), nil)
end)

test('an error is raised by getResult', function()
   local task = BackgroundTask(function() error('oh no') end)
   raises(function() task.getResult() end, 'oh no', 'test_background.lua:')
   raises(function() BackgroundTask() end, 'BackgroundTask arg #1')
   local up = 1
   raises(function() BackgroundTask(function() return up end) end, 'Attempt to serialize closure')
end)

test('a thousand tasks on twenty threads', function()
   local pool = BackgroundTaskPool(20)
   for i = 1, 1000 do equal(pool.addTask(function(i) return i, i * i end, i), i) end
   equal(pool.hasTask(), true)
   for i = 1, 1000 do
      local n, square = pool.getResult(i)
      equal({ n, square }, { i, i * i })
   end
   equal({ pool.hasTask(), pool.isDone() }, { false, true })
   equal(count(pool.getResult(7)), 0)
end)

test('forty-two tasks of which every eighth fails', function()
   local pool = BackgroundTaskPool(4, { closeOnLastTask = true })
   local gate = ipc.channel()
   pool.addTask(function(gate) gate:read() return 0 end, gate) -- keeps the pool open until all are added
   for _ = 1, 42 do pool.addTask(function(i) if i % 8 == 1 then error('task ' .. i .. ' fails', 0) end return i end, _) end
   gate:close()
   equal(pool.getResult(1), 0)
   for i = 1, 42 do
      local ok, result = pcall(pool.getResult, i + 1)
      equal(ok, i % 8 ~= 1)
      if ok then equal(result, i) else assert(result:find('task ' .. i .. ' fails', 1, true), result) end
   end
   raises(function() pool.addTask(function() end) end, 'Closed')
end)

test('results without a number come in order', function()
   local pool = BackgroundTaskPool(3)
   for i = 1, 5 do pool.addTask(function(i) return i end, i) end
   for i = 1, 5 do equal(pool.getResult(), i) end
   equal(count(pool.getResult()), 0)
   raises(function() pool.getResult(6) end, 'task 6')
   raises(function() pool.isDone(-1) end, "-1 is no task's number")
   raises(function() BackgroundTaskPool(0) end, 'number of threads')
   raises(function() BackgroundTaskPool(1, 1) end, 'BackgroundTaskPool arg #2')
   raises(function() pool.addTask('x') end, 'addTask arg #1')
end)

test('a thread keeps its state from task to task, and ends with its pool', function()
   local pool = BackgroundTaskPool(1)
   pool.addTask(function() counter = 1 end)
   pool.addTask(function() counter = counter + 1 return counter end)
   equal(pool.getResult(2), 2)
   pool = nil
   collectgarbage()
end)

harness.finish()
