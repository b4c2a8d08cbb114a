-- Waits for what never comes, as its argument says; its parent presses Ctrl-C as soon as it has read the process id.

local ipc
if arg[2] == 'coroutine' then
   coroutine.wrap(function() ipc = require 'libipc' end)()
   collectgarbage() -- and the coroutine is gone
else
   ipc = require 'libipc'
end

local waits = {
   clients = function() ipc.server():clients(1, print) end,
   channel = function() ipc.channel():read() end,
   workqueue = function() ipc.workqueue():read() end,
   barrier = function() ipc.mutex():barrier(2) end,
   join = function() ipc.map(1, function() require('libipc').channel():read() end):join() end,
   task = function() require('ipc.BackgroundTask')(function() require('libipc').channel():read() end).getResult() end,
   program = function() ipc.spawn({ file = 'sleep', args = { 100 } }):stdout() end,
}

local _, why = pcall(function()
   print(ipc.getpid())
   io.stdout:flush()
   waits[arg[1]]()
end)
print(why)
os.exit(0, true) -- threads that wait for ever end with the process
