-- Waits for a client that never comes; its parent presses Ctrl-C as soon as it has read the process id.

local ipc = require 'libipc'
local server = ipc.server()
local _, why = pcall(function()
   print(ipc.getpid())
   io.stdout:flush()
   server:clients(1, print)
end)
print(why)
