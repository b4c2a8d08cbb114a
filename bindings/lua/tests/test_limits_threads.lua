-- Threads, queues, programs: nothing leaks over a hundred thousand calls, and no argument whatever ends the interpreter.

local harness = require 'harness'
local test, equal = harness.test, harness.equal
local ipc = require 'libipc'
local syncline = require 'syncline'
local limits = require 'limits'
local leaks_nothing, fuzz = limits.leaks_nothing, limits.fuzz

local tensor = syncline.FloatTensor(4)
local channel, queue, mutex, shared = ipc.channel(), ipc.workqueue(), ipc.mutex(), ipc.sharedtable()
local plain = ipc.marshal { 1, 'two', { 3 } }
local objects = ipc.marshal { tensor, channel, function(x) return x end }

leaks_nothing('a channel', 100000, function(i)
   channel:write(i, { name = 'x' })
   channel:read()
   channel:read()
end)
leaks_nothing('a channel with tensors, functions and channels in it', 50000, function()
   channel:write(tensor, queue, function(x) return x end)
   channel:read()
   channel:read()
   channel:read()
end)
leaks_nothing('making channels and leaving objects in them', 20000, function()
   local one = ipc.channel()
   one:write(tensor, queue)
end)
leaks_nothing('a queue whose questions nobody answers, opened by name', 20000, function()
   local q = ipc.workqueue('again and again')
   q:write({ 1 }, tensor)
   q:close()
end)
leaks_nothing('a mutex', 100000, function()
   mutex:lock()
   mutex:unlock()
   mutex:barrier(1)
end)
leaks_nothing('a shared table', 100000, function(i)
   shared[i % 10] = { i, tensor }
   return shared[i % 10], #shared
end)
leaks_nothing('reading what was marshalled', 100000, function() return plain:read(), objects:read() end)
leaks_nothing('marshalling', 50000, function(i) ipc.marshal({ i, function() return i end }, true):close() end)
leaks_nothing('calls that are refused', 100000, function()
   pcall(channel.write, channel, io.stdout)
   pcall(mutex.unlock, mutex)
   pcall(ipc.map, 1, print)
end)
leaks_nothing('threads and what they return', 200, function()
   ipc.map(2, function(t, c) return t, c, { 1 } end, tensor, channel):join()
end)
leaks_nothing('threads that fail', 100, function()
   pcall(ipc.marshal, nil)
   local m = ipc.map_extended(1, 'error("", 0)', function() end)
   pcall(m.join, m)
end)
leaks_nothing('programs', 100, function() ipc.spawn({ file = 'true' }):wait() end)

-- Arguments that nobody should pass.
local closed_queue, closed_marshal = ipc.workqueue(), ipc.marshal(1)
closed_queue:close()
closed_marshal:close()
local drained = ipc.channel()
drained:close()
local ended = ipc.spawn { file = 'true' }
ended:wait()
local joined = ipc.map(1, function() end)
joined:join()
local path = os.tmpname()
local lock = ipc.flock(path)
lock:close()
for _, object in ipairs { tensor, channel, closed_queue, mutex, shared, closed_marshal, drained, ended, joined, lock } do
   limits.strange[#limits.strange + 1] = object
end

local function every(kind, object, names, nonblocking)
   for _, name in ipairs(names) do
      local f = object[name]
      fuzz(kind .. ':' .. name, nonblocking and nonblocking[name] or f, object)
      fuzz(kind .. '.' .. name .. ' of something else', function(first, ...)
         if first == channel and (name == 'read' or name == 'close') then return end -- would wait for ever, or end it for the others
         if first == mutex and name == 'lock' then return end
         return f(first, ...)
      end)
   end
end
every('channel', channel, { 'write', 'read', 'closed', 'drained', 'num_items' }, { read = function(c) return c:read(true) end })
every('a drained channel', drained, { 'write', 'read', 'close' })
every('a closed queue', closed_queue, { 'write', 'writeup', 'read', 'drain', 'close' })
every('queue', queue, { 'write', 'writeup', 'read' }, { read = function(q) return q:read(true) end })
every('mutex', mutex, { 'unlock' })
fuzz('mutex:barrier', function(_, n) if n ~= 3 and n ~= 2 ^ 53 then mutex:barrier(n) end end, false)
every('closed marshal', closed_marshal, { 'read', 'close' })
every('map', joined, { 'join', 'checkErrors' })
every('an ended program', ended, { 'pid', 'running', 'stdin', 'stdout', 'stdoutFileId', 'wait' })
every('lock', lock, { 'close' })
fuzz('sharedtable[]', function(_, key, value) shared[key] = value return shared[key] end, false)
fuzz('sharedtable', function(_, ...) return ipc.sharedtable(...) end, false)
fuzz('sharedtable_size', function(_, ...) return ipc.sharedtable_size(...) end, false)
fuzz('marshal', function(_, ...) return ipc.marshal(...) end, false)
fuzz('workqueue', function(_, ...) return ipc.workqueue(...) end, false)
fuzz('channel()', function(_, ...) return ipc.channel(...) end, false)
fuzz('spawn', function(_, file, args, env) return ipc.spawn { file = file ~= 'x' and file or nil, args = args, env = env } end, false)
fuzz('spawn of anything', function(_, ...) return ipc.spawn(...) end, false)
fuzz('flock', function(_, file, block) return ipc.flock(file, true, block) end, false)
fuzz('waitpid', function(_, pid) return ipc.waitpid(pid) end, false)
fuzz('BackgroundTaskPool', function(_, n, options) return require 'ipc.BackgroundTaskPool'(n == 3 and 1 or n, options) end, false)
fuzz('map', function(_, n, f, ...) return ipc.map(n == 3 and 1 or n, f, ...) end, false)
fuzz('map_extended', function(_, ...) return ipc.map_extended(...) end, false)
os.remove(path)

test('after all of it everything still works', function()
   equal(ipc.map(2, function(c, id) c:write(id) return id end, ipc.channel()):join(), 1)
end)

harness.finish()
