-- ipc.spawn, ipc.flock, fork and what a process knows of itself: torch-ipc's own cases with their numbers.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'

local function count(...) return select('#', ...) end

test('echo "what up dawg"', function()
   local p = ipc.spawn { file = 'echo', args = { 'what', 'up', 'dawg' } }
   equal(p:pid() > 0, true)
   equal(p:stdout(), 'what up dawg')
   equal(p:stdout(), nil)
   equal(p:wait(), 0)
   raises(function() p:wait() end, 'spawn was already closed')
   raises(function() p:stdout() end, 'spawn was already closed')
   raises(function() p:stdin('x') end, 'spawn was already closed')
   for _, question in ipairs { 'pid', 'running', 'stdoutFileId' } do raises(function() p[question](p) end, 'spawn was already closed') end
end)

test('tee a, b, c, d', function()
   local p = ipc.spawn { file = 'tee' }
   for _, line in ipairs { 'a', 'b', 'c', 'd' } do
      p:stdin(line .. '\n')
      equal(p:stdout('*line'), line)
   end
   p:stdin('rest\nof it')
   p:stdin()
   equal(p:stdout('*all'), 'rest\nof it')
   equal(p:stdout('*all'), nil)
   equal(p:wait(), 0)
end)

test('printenv SOME_VAR', function()
   local p = ipc.spawn { file = 'printenv', args = { 'SOME_VAR' }, env = { 'SOME_VAR=42' } }
   equal(p:stdout('*all'), '42\n')
   equal(p:wait(), 0)
   local env = ipc.spawn { file = '/usr/bin/env', env = { 'ONLY=1' } } -- it replaces the environment
   equal(env:stdout('*all'), 'ONLY=1\n')
   env:wait()
   local inherited = ipc.spawn { file = 'printenv', args = { 'PATH' } }
   equal(inherited:stdout(), os.getenv('PATH'))
   inherited:wait()
   raises(function() ipc.spawn { file = 'true', env = { 'no equals sign' } } end, 'NAME=value')
end)

test('signals end it with 0 and are told beside that', function()
   for name, number in pairs { KILL = 9, TERM = 15 } do
      local p = ipc.spawn { file = 'sleep', args = { 100 } } -- a number becomes text
      equal({ p:wait(name) }, { 0, number })
   end
   local p = ipc.spawn { file = 'sleep', args = { '100' } }
   raises(function() p:wait('HUP') end, 'HUP')
   equal((p:wait('KILL')), 0)
end)

test('a file that is not there, and codes', function()
   raises(function() ipc.spawn { file = 'there-is-no-such-program' } end, 'there-is-no-such-program', 'No such file', 'test_programs.lua:')
   local p = ipc.spawn { file = 'sh', args = { '-c', 'exit 7' } }
   equal(p:wait(), 7)
end)

test('a wait closes its stdin and reads what it has to say', function()
   local p = ipc.spawn { file = 'cat' }
   p:stdin(('x'):rep(100000))
   equal(p:wait(), 0)
end)

test('its stderr is ours', function()
   local child = io.popen(arg[-1] .. [[ -e "require('libipc').spawn({ file = 'sh', args = { '-c', 'echo aside >&2' } }):wait()" 2>&1]])
   equal(child:read('*a'), 'aside\n')
   child:close()
end)

test('running until it has ended', function()
   local p = ipc.spawn { file = 'sleep', args = { 1 } }
   local polls = 0
   while p:running() do
      polls = polls + 1
      ipc.spawn({ file = 'sleep', args = { '.2' } }):wait()
   end
   assert(polls >= 3 and polls <= 7, polls)
   equal(p:wait(), 0)
end)

test('some bytes of its output, and the descriptor they come from', function()
   local p = ipc.spawn { file = 'printf', args = { 'abcdef' } }
   equal(p:stdout(3), 'abc')
   equal(p:stdout(100), 'def')
   equal(p:stdout(100), nil)
   equal(type(p:stdoutFileId()), 'number')
   equal(p:wait(), 0)
end)

test('a child that says much while it is written to does not lock up', function()
   local p = ipc.spawn { file = 'cat' }
   local text = ('0123456789'):rep(100000)
   p:stdin(text)
   p:stdin()
   equal(p:stdout('*all') == text, true)
   p:wait()
end)

test('one that has ended no longer reads, and SIGPIPE ends nobody', function()
   local p = ipc.spawn { file = 'sh', args = { '-c', 'exit 3' } }
   while p:running() do end
   for _ = 1, 3 do
      raises(function() p:stdin('x') end, 'PeerLost', 'no longer reads', 'code 3')
      local facts = require('syncline').last_error()
      equal({ facts.kind, facts.pid }, { 'PeerLost', p:pid() })
   end
   equal(p:wait(), 3)
end)

test('options are checked in the words of the original', function()
   raises(function() ipc.spawn {} end, 'file: expected a string')
   raises(function() ipc.spawn { file = 'echo', args = 'x' } end, 'args: expected a table, or nil')
   raises(function() ipc.spawn { file = 'echo', env = 'x' } end, 'env: expected a table, or nil')
   raises(function() ipc.spawn('echo') end, 'expected a single table argument')
   raises(function() ipc.spawn() end, 'expected a single table argument')
   raises(function() ipc.spawn({ file = 'echo' }, 1) end, 'expected a single table argument')
   raises(function() ipc.spawn { file = 'echo', args = { {} } } end, 'args[1]')
   raises(function() ipc.spawn { file = 'e\0cho' } end, 'byte 0')
end)

test('one that nobody waits for is ended', function()
   local p = ipc.spawn { file = 'sleep', args = { 1000 } }
   local pid = p:pid()
   p = nil
   collectgarbage()
   collectgarbage()
   equal(io.open('/proc/' .. pid .. '/stat'), nil)
end)

test('flock is exclusive, and free again after close', function()
   local path = os.tmpname()
   local lock = ipc.flock(path)
   equal(tostring(lock), 'ipc.flock')
   equal(ipc.flock(path, true), nil)
   local held = ipc.map(1, function(path) return require('libipc').flock(path, true) == nil end, path)
   equal(held:join(), true)
   lock:close()
   lock:close()
   local again = ipc.flock(path, true)
   equal(again ~= nil, true)
   again = nil
   collectgarbage()
   collectgarbage()
   ipc.flock(path):close() -- the collector gave it back
   os.remove(path)
   equal(ipc.flock(path, true), nil) -- without a wait it makes no file
   ipc.flock(path):close()
   local mode = io.popen('stat -c %a ' .. path)
   equal(mode:read('*l'), '600') -- made for its owner alone
   mode:close()
   os.remove(path)
   raises(function() ipc.flock('/no/such/folder/file') end, 'flock')
   raises(function() ipc.flock() end, 'flock arg #1')
end)

test('a flock that is waited for comes when it is let go', function()
   local path = os.tmpname()
   local lock, ready = ipc.flock(path), ipc.channel()
   local m = ipc.map(1, function(path, ready)
      ready:write(true)
      require('libipc').flock(path):close()
      return 'had it'
   end, path, ready)
   ready:read()
   lock:close()
   equal(m:join(), 'had it')
   os.remove(path)
end)

test('fork and waitpid', function()
   io.stdout:flush()
   local pid = ipc.fork()
   if pid == 0 then
      local ok, code = pcall(function()
         local channel = ipc.channel() -- a family of its own
         channel:write(40)
         local _, item = channel:read()
         return item + 2
      end)
      os.exit(ok and code or 1)
   end
   equal(ipc.waitpid(pid), 42)
   raises(function() ipc.waitpid(pid) end, 'waitpid')
   raises(function() ipc.waitpid(-1) end, 'is no process')
   raises(function() ipc.waitpid('x') end, 'waitpid arg #1')
end)

test('a forked child hears that the objects are its parent\'s', function()
   local channel = ipc.channel()
   channel:write(1)
   io.stdout:flush()
   local pid = ipc.fork()
   if pid == 0 then
      local ok, why = pcall(channel.read, channel)
      os.exit(not ok and tostring(why):find('ForkError', 1, true) and 7 or 1)
   end
   equal(ipc.waitpid(pid), 7)
   equal({ channel:read() }, { 0, 1 })
end)

test('a child that a signal ended has no code', function()
   local pid = ipc.fork()
   if pid == 0 then ipc.channel():read() end -- for ever
   os.execute('kill -9 ' .. pid)
   equal(count(ipc.waitpid(pid)), 0)
end)

test('what a process knows of itself', function()
   local file = assert(io.open('/proc/self/stat'))
   local pid, ppid = file:read('*a'):match('^(%d+) %b() %a (%d+)')
   file:close()
   equal({ ipc.getpid(), ipc.getppid() }, { tonumber(pid), tonumber(ppid) })
   equal(type(ipc.gettid()), 'number')
   for mode, devel in pairs { ['1'] = 'true', ['10'] = 'true', ['0'] = 'false', [''] = 'false' } do
      local child = io.popen(('CKOIA_DEVEL_MODE=%s %s -e "print(require(\'libipc\').isDevel())"'):format(mode, arg[-1]))
      equal(child:read('*l'), devel)
      child:close()
   end
   equal(ipc.isOSX(), false)
end)

harness.finish()
