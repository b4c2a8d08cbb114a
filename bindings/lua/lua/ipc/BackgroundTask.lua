--- One task on a thread of its own: `BackgroundTask(func, ...)`.

local raise = require 'syncline.raise'
local BackgroundTaskPool = require 'ipc.BackgroundTaskPool'
raise.mark()

return function(func, ...)
   raise.expect(func, 'function', 'BackgroundTask arg #1')
   local pool = BackgroundTaskPool(1, { closeOnLastTask = true })
   pool.addTask(func, ...)
   local function getResult() return pool.getResult(1) end
   return {
      isDone = function() return pool.isDone(1) end,
      getResult = getResult,
      getResults = getResult, -- as torch-ipc's documentation calls it
   }
end
