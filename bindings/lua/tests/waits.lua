-- Waits for what never comes, as its argument says; its parent presses Ctrl-C as soon as it has read the process id.

local ipc
if arg[2] == 'coroutine' then
   coroutine.wrap(function() ipc = require 'libipc' end)()
   collectgarbage() -- and the coroutine is gone
else
   ipc = require 'libipc'
end

-- A server's client and a client that is connected to it.
local function connected(f)
   local server, port = ipc.server()
   local client = ipc.client(port)
   server:clients(1, function(peer) f(client, peer, server) end)
end

local function megabytes() return require('syncline').FloatTensor(5000000) end

local waits = {
   clients = function() ipc.server():clients(1, print) end,
   connect = function() ipc.client(1) end,
   recv = function() connected(function(client) client:recv() end) end,
   ['recv a tensor'] = function() connected(function(_, peer) peer:recv(megabytes()) end) end,
   recvAny = function() connected(function(_, _, server) server:recvAny() end) end,
   -- More than the system takes for somebody who does not read.
   send = function() connected(function(client) while true do client:send(('x'):rep(10000000)) end end) end,
   ['send a tensor'] = function()
      local tensor = megabytes()
      connected(function(client) while true do client:send(tensor) end end)
   end,
   ['send a tensor to a client'] = function()
      local tensor = megabytes()
      connected(function(_, peer) while true do peer:send(tensor) end end)
   end,
   broadcast = function() connected(function(_, _, server) while true do server:broadcast(('x'):rep(10000000)) end end) end,
   channel = function() ipc.channel():read() end,
   ['a full channel'] = function() ipc.channel(1):write(1, 2) end,
   workqueue = function() ipc.workqueue():read() end,
   drain = function()
      local queue = ipc.workqueue()
      queue:write('a question')
      queue:drain()
   end,
   lock = function()
      local mutex, locked = ipc.mutex(), ipc.channel()
      ipc.map(1, function(mutex, locked)
         mutex:lock()
         locked:write(true)
         require('libipc').channel():read()
      end, mutex, locked)
      locked:read()
      mutex:lock()
   end,
   barrier = function() ipc.mutex():barrier(2) end,
   join = function() ipc.map(1, function() require('libipc').channel():read() end):join() end,
   task = function() require('ipc.BackgroundTask')(function() require('libipc').channel():read() end).getResult() end,
   program = function() ipc.spawn({ file = 'sleep', args = { 100 } }):stdout() end,
   ['the end of a program'] = function() ipc.spawn({ file = 'sleep', args = { 100 } }):wait() end,
   LocalhostTree = function() require 'ipc.LocalhostTree'(1, 2) end,
   StaticTree = function() require 'ipc.StaticTree'(2, 2, '127.0.0.1', 0, '127.0.0.1', 1) end,
   DiscoveredTree = function() require 'ipc.DiscoveredTree'(2, 2, '127.0.0.1', 0, print, function() end) end,
   Tree = function() require 'ipc.Tree'(1, 2, 2, ipc.server(), nil, '127.0.0.1') end,
}

if arg[1] == 'list' then
   for name in pairs(waits) do print(name) end
   os.exit(0)
end

local _, why = pcall(function()
   print(ipc.getpid())
   io.stdout:flush()
   waits[arg[1]]()
end)
print(why)
os.exit(0, true) -- threads that wait for ever end with the process
