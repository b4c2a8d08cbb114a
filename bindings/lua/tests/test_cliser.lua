-- Servers and clients, as torch-ipc's README and tests have them.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'
local syncline = require 'syncline'

-- A server and n clients, whose messages f looks at.
local function with_clients(n, f)
   local server, port = ipc.server('127.0.0.1', 0)
   local clients = {}
   for i = 1, n do clients[i] = ipc.client('127.0.0.1', port) end
   f(server, clients, port)
   for _, client in ipairs(clients) do client:close() end
   server:close()
end

test('the example of the README', function()
   local server, port = ipc.server('127.0.0.1', 0)
   local client = ipc.client('127.0.0.1', port)
   client:send('hi')
   local msg = server:recvAny()
   assert(msg == 'hi')
   client:close()
   server:close()
end)

test('tag and id, ping and pong', function()
   with_clients(1, function(server, clients)
      clients[1]:send('ping')
      local kept
      local count = server:clients(1, function(client)
         kept = client
         equal(client:recv(), 'ping')
         equal(client:id(), 0)
         equal(client:tag(), nil)
         client:tag('hi')
         client:id(42)
         equal({ client:tag(), client:id() }, { 'hi', 42 })
         equal(client:address(), '127.0.0.1')
         client:send('pong')
      end)
      equal(count, 1)
      equal(clients[1]:recv(), 'pong')
      raises(function() kept:send('late') end, 'server client is invalid, either closed or used outside of server function scope')
      equal(server:clients(function() error('nobody has it') end, 'other'), 0)
   end)
end)

test('everything that can travel does', function()
   with_clients(1, function(server, clients)
      local sent = { true, false, 42.13, -7, 'text', 'bytes \0\255', {}, { 1, { 2, { x = 'deep' } } }, { [3] = 'three', k = 'v' } }
      for _, value in ipairs(sent) do
         clients[1]:send(value)
         equal((server:recvAny()), value)
      end
      clients[1]:send(nil)
      equal((server:recvAny()), nil)
      local long = ('x'):rep(1000000) -- torch-ipc stopped at 16 KiB
      clients[1]:send({ long })
      equal(server:recvAny()[1] == long, true)
      clients[1]:send({ weights = syncline.IntTensor { { 1, 2 }, { 3, 4 } } })
      equal(server:recvAny().weights:totable(), { { 1, 2 }, { 3, 4 } })
   end)
end)

test('recvAsync gives nothing until a message is completely here', function()
   with_clients(1, function(server, clients)
      server:clients(1, function(client)
         equal(clients[1]:recvAsync(), nil)
         client:send('there')
      end)
      local polls, message = 0, nil
      while message == nil and polls < 1000000 do
         message = clients[1]:recvAsync()
         polls = polls + 1
      end
      equal(message, 'there')
   end)
end)

test('ten clients: broadcast by tag, order by id, recvAny from each', function()
   with_clients(10, function(server, clients)
      local index = 0
      equal(server:clients(10, function(client)
         index = index + 1
         client:id(11 - index)
         client:tag(index % 2 == 0 and 'even' or 'odd')
      end), 10)
      local ids = {}
      server:clients(function(client) ids[#ids + 1] = client:id() end)
      equal(ids, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 })
      ids = {}
      server:clients(function(client) ids[#ids + 1] = client:id() end, 'even', 1)
      equal(ids, { 9, 7, 5, 3, 1 })
      server:broadcast('even ones', 'even')
      server:broadcast({ 'all' })
      local even = 0
      for _, client in ipairs(clients) do
         local message = client:recv()
         if message == 'even ones' then
            even = even + 1
            message = client:recv()
         end
         equal(message, { 'all' })
         client:send('hi')
      end
      equal(even, 5)
      for _ = 1, 10 do
         local message, client = server:recvAny()
         equal(message, 'hi')
         client:send('thanks')
      end
      for _, client in ipairs(clients) do equal(client:recv(), 'thanks') end
   end)
end)

test('tensors are received in place; another shape is refused and the message stays', function()
   with_clients(1, function(server, clients)
      local sent = syncline.FloatTensor(5, 6, 7)
      sent[2][3][4] = 9
      clients[1]:send(sent)
      clients[1]:send(syncline.ByteTensor(4):string('ping'))
      clients[1]:send(sent[2])
      clients[1]:send(syncline.DoubleTensor(0))
      server:clients(1, function(client)
         local target = syncline.FloatTensor(5, 6, 7)
         equal(client:recv(target) == target, true)
         equal(target[2][3][4], 9)
         raises(function() client:recv(syncline.ByteTensor(3)) end, 'ShapeMismatch', '(4', '(3')
         raises(function() client:recv(syncline.CharTensor(4)) end, 'ShapeMismatch')
         raises(function() client:recv('text') end, 'no tensor')
         equal(client:recv(syncline.ByteTensor(4)):string(), 'ping')
         equal(client:recv(syncline.FloatTensor(6, 7))[3][4], 9)
         equal(#client:recv(syncline.DoubleTensor(0)), 0)
      end)
   end)
end)

test('tensors of every type arrive as they went', function()
   with_clients(1, function(server, clients)
      for _, name in ipairs { 'Float', 'Double', 'Half', 'BFloat16', 'Char', 'Short', 'Int', 'Long', 'Byte' } do
         local sent = syncline[name .. 'Tensor'] { 1, 2, 3 }
         clients[1]:send(sent)
         local got = server:recvAny()
         equal({ got:type(), got:totable() }, { sent:type(), { 1, 2, 3 } })
      end
   end)
end)

test('recvAny of a tag hears its clients alone', function()
   with_clients(2, function(server, clients)
      for i, client in ipairs(clients) do client:send('I am ' .. i) end
      server:clients(2, function(peer) peer:tag(peer:recv() == 'I am 1' and 'one' or 'two') end)
      clients[1]:send('first')
      clients[2]:send('second')
      local message, peer = server:recvAny('two')
      equal({ message, peer:tag() }, { 'second', 'two' })
      equal((server:recvAny()), 'first')
   end)
end)

test('a server may end one connection', function()
   with_clients(2, function(server, clients)
      local ended
      clients[1]:send('end me')
      clients[2]:send('not me')
      server:clients(2, function(peer)
         if peer:recv() == 'end me' then
            ended = peer
            peer:close()
         end
      end)
      raises(function() clients[1]:recv() end, 'remote peer disconnected')
      raises(function() ended:send('x') end, 'server client is invalid')
      equal(server:clients(function(peer) peer:send('you stay') end), 1)
      equal(clients[2]:recv(), 'you stay')
   end)
end)

test('a client goes to another thread', function()
   local server, port = ipc.server()
   local client = ipc.client(port)
   local m = ipc.map(1, function(client)
      client:send('from a thread')
      return client:recv()
   end, client)
   server:clients(1, function(peer)
      equal(peer:recv(), 'from a thread')
      peer:send(42)
   end)
   equal(m:join(), 42)
   client:send('still here')
   equal((server:recvAny()), 'still here')
   client:close()
   server:close()
end)

test('one that leaves is missed', function()
   with_clients(2, function(server, clients)
      server:clients(2, function() end)
      clients[1]:close()
      clients[2]:send('still here')
      equal((server:recvAny()), 'still here')
      raises(function() clients[1]:send('x') end, 'Closed')
      raises(function() clients[1]:recv() end, 'Closed')
      server:close()
      raises(function() clients[2]:recv() end, 'Closed', 'remote peer disconnected')
      raises(function() server:recvAny() end, 'Closed')
      raises(function() server:clients(1, print) end, 'Closed')
   end)
end)

test('counts of what went through', function()
   with_clients(1, function(server, clients)
      clients[1]:send('four')
      server:recvAny()
      local stats = clients[1]:netStats()
      equal(stats.tx.num_calls, 1)
      equal(stats.tx.num_bytes > 4, true)
      equal(server:netStats().rx.num_calls, 1)
      for _, name in ipairs { 'num_regions', 'num_system_calls', 'total_seconds', 'system_seconds', 'cuda_sync_seconds',
         'cudacliser_profile_seconds', 'cuda_ipc_bytes', 'NETWORK MB/s', 'CUDA IPC MB/s' } do
         equal(type(stats.tx[name]), 'number')
      end
   end)
end)

test('waits end with a reason', function()
   local server = ipc.server('127.0.0.1', 0, { timeout = 0.2 })
   raises(function() server:clients(1, print) end, 'Timeout', 'server timed out waiting for clients to connect')
   raises(function() ipc.client('127.0.0.1', 1, { timeout = 0.2 }) end, '127.0.0.1:1')
   local other = ipc.server('127.0.0.1', 0, { token = 'one' })
   server:close()
   other:close()
   local secret, port = ipc.server('127.0.0.1', 0, { token = 'one' })
   raises(function() ipc.client('127.0.0.1', port, { token = 'two', timeout = 2 }) end, 'AuthError')
   secret:close()
end)

test('what an error in f says reaches the caller of clients', function()
   with_clients(1, function(server)
      local words = raises(function() server:clients(1, function() error('not this one') end) end, 'not this one')
      equal(words:find('traceback', 1, true), nil)
   end)
end)

test('bad arguments raise errors with facts', function()
   with_clients(1, function(server, clients)
      local client = clients[1]
      raises(function() client:send(print) end, 'functions do not travel')
      raises(function() client:send(coroutine.create(function() end)) end, 'cannot be sent')
      raises(function() client:send(io.stdout) end, 'cannot be sent')
      raises(function() client:send({ deep = { print } }) end, 'functions do not travel')
      local loop = {}
      loop[1] = loop
      raises(function() client:send(loop) end, 'contain itself')
      raises(function() client.send() end)
      raises(function() client.send(server, 'x') end)
      raises(function() server:clients() end, 'number')
      raises(function() server:clients(-1, print) end, '-1')
      raises(function() server:clients(1) end, 'function')
      raises(function() ipc.client() end, 'string')
      raises(function() ipc.client('127.0.0.1') end, 'number')
      raises(function() ipc.client('127.0.0.1', -1) end, 'port')
      raises(function() ipc.client('127.0.0.1', 2 ^ 40) end, 'port')
      raises(function() ipc.server({}, 0) end, 'string')
      raises(function() ipc.server('127.0.0.1', 'x') end, 'number')
      raises(function() ipc.server('256.1.1.1', 0) end)
      client:send('still works')
      equal((server:recvAny()), 'still works')
   end)
end)

local lua = arg[-1]

test('a client may start before its server', function()
   local place = 'unix:@lua-early-' .. ipc.getpid()
   local early = io.popen(([[%s -e "local client = require('libipc').client('%s', 0) client:send('early') client:recv()"]]):format(lua, place))
   local server = ipc.server(place, 0)
   local message, client = server:recvAny()
   equal(message, 'early')
   client:send('go')
   early:close()
   server:close()
end)

test('a port that is taken is an error', function()
   local server, port = ipc.server('127.0.0.1', 0)
   raises(function() ipc.server('127.0.0.1', port) end, tostring(port), 'in use')
   server:close()
end)

-- A program that waits for what never comes, as `waits.lua` does it.
local function waiting(wait, how)
   return io.popen(("exec %s '%s' '%s' %s"):format(lua, (arg[0]:gsub('test_cliser', 'waits')), wait, how or ''))
end

-- Returns when the process has been asleep, and has used no processor, five times in a row: it is in its wait, and not on its way there.
local function until_asleep(pid)
   local quiet, used, looks = 0, nil, 0
   while quiet < 5 do
      looks = looks + 1
      assert(looks < 500, 'it does not wait')
      local stat = assert(io.open(('/proc/%s/stat'):format(pid)))
      local state, user, system = stat:read('*a'):match('%) (%a)' .. (' %S+'):rep(10) .. ' (%d+) (%d+)')
      stat:close()
      quiet = state == 'S' and user .. '+' .. system == used and quiet + 1 or 0
      used = user .. '+' .. system
      os.execute('sleep 0.02')
   end
end

-- It is interrupted while it waits, and says so.
local function interrupted(wait, how)
   local child = waiting(wait, how)
   local pid = child:read('*l')
   until_asleep(pid)
   os.execute('kill -INT ' .. pid)
   local why = child:read('*a')
   child:close()
   assert(why:lower():find('interrupted'), wait .. ': ' .. why)
   assert(not why:find('runtime error', 1, true), wait .. ': ' .. why)
end

local waits = waiting('list')
for wait in waits:lines() do
   test('Ctrl-C ends a wait: ' .. wait, function() interrupted(wait) end)
end
waits:close()

test('Ctrl-C ends a wait where a coroutine that is gone has loaded the module', function()
   local hidden = _VERSION == 'Lua 5.1' and not rawget(_G, 'jit') -- which tells nobody its main thread, where the hook is
   if not hidden then interrupted('channel', 'coroutine') end
end)

test('facts about the process', function()
   equal(ipc.getpid() > 1, true)
   equal(ipc.getppid() > 0, true)
   equal(ipc.gettid(), ipc.gettid())
   equal({ ipc.isOSX(), ipc.isDevel() }, { false, false })
end)

harness.finish()
