--- Threads that work off tasks, each with a Lua state of its own: `BackgroundTaskPool(n, { closeOnLastTask = false })`.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
require 'libipc' -- the objects that tasks are given and return
raise.mark()

local open, add, has_task = raise.from(native.pool), raise.from(native.pool_add), raise.from(native.pool_has_task)
local is_done, get_result = raise.from(native.pool_is_done), raise.from(native.pool_get_result)

--- With `closeOnLastTask` the threads end when all tasks have, and none can be added afterwards.
return function(n, options)
   local closes = raise.options(options, 'BackgroundTaskPool arg #2', 'closeOnLastTask').closeOnLastTask
   if closes ~= nil then raise.expect(closes, 'boolean', 'BackgroundTaskPool closeOnLastTask') end
   local tasks = open(raise.whole(n, 'BackgroundTaskPool arg #1'), closes or false)
   return {
      --- Adds a task and returns its number: 1, 2, … Its function has no upvalues.
      addTask = function(func, ...)
         raise.expect(func, 'function', 'addTask arg #1')
         return add(tasks, func, ...)
      end,
      --- Whether there is a task whose result nobody has taken.
      hasTask = function() return has_task(tasks) end,
      --- Whether this task has ended; without a number, whether all have.
      isDone = function(id) return is_done(tasks, id) end,
      --- Waits for a task and returns its results, once; raises what it raised. Without a number the first that was not taken.
      getResult = function(id) return get_result(tasks, id) end,
   }
end
