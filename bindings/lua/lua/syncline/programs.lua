--- What has to do with other programs and with this process itself: spawn, flock, fork.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
raise.mark()

local call = raise.family(native, '')

local programs = {
   getpid = raise.from(native.getpid),
   getppid = raise.from(native.getppid),
   gettid = raise.from(native.gettid),
   --- 0 in the child, the child's process id in the parent.
   fork = raise.from(native.fork),
}

local waitpid = raise.from(native.waitpid)

--- Waits for a child; its exit code, or nothing if a signal ended it.
function programs.waitpid(pid)
   local code = waitpid(raise.whole(pid, 'waitpid arg #1'))
   if code ~= nil then return code end
end

function programs.isOSX() return false end
function programs.isDevel() return (os.getenv('CKOIA_DEVEL_MODE') or ''):sub(1, 1) == '1' end

local spawn_class = {
   __index = {
      pid = function(self) return call.spawn_pid(self) end,
      running = function(self) return call.spawn_running(self) end,
      --- Writes all of the text; without one closes the child's stdin.
      stdin = function(self, text) call.spawn_stdin(self, text) end,
      --- '*line' (or nothing), '*all', or at most so many bytes; nil at the end.
      stdout = function(self, how) return call.spawn_stdout(self, how) end,
      stdoutFileId = function(self) return call.spawn_stdout_id(self) end,
      --- Waits for its end, after 'TERM' or 'KILL' if one is given. The exit code, 0 for a child that a signal ended, and then that signal.
      wait = function(self, signal) return call.spawn_wait(self, signal) end,
   },
   __tostring = function() return 'ipc.spawn' end,
}

-- The items of an option, numbers as text.
local function texts(list, name)
   local all = {}
   if list == nil then return all end
   if type(list) ~= 'table' then raise.error('ArgumentError: ' .. name .. ': expected a table, or nil') end
   for i, item in ipairs(list) do
      if type(item) ~= 'string' and type(item) ~= 'number' then
         raise.error(('ArgumentError: %s[%d]: expected a string or a number'):format(name, i))
      end
      all[i] = tostring(item)
   end
   for place in pairs(list) do
      -- `env = { NAME = 'value' }` would be an empty list, and an empty one means something else.
      if all[place] == nil then raise.error(('ArgumentError: %s: `%s` is no place in a list'):format(name, tostring(place))) end
   end
   return all
end

--- Starts a program: `spawn { file = 'tee', args = {}, env = { 'NAME=value' } }`.
function programs.spawn(options, ...)
   if type(options) ~= 'table' or select('#', ...) > 0 then raise.error('ArgumentError: expected a single table argument') end
   if type(options.file) ~= 'string' then raise.error('ArgumentError: file: expected a string') end
   return raise.adopt(call.spawn(options.file, texts(options.args, 'args'), texts(options.env, 'env')), spawn_class)
end

local flock_class = {
   __index = { close = function(self) call.flock_close(self) end },
   __tostring = function() return 'ipc.flock' end,
}

--- Locks a file for this process alone, and waits for that. With `noBlock` nil if it is not there or somebody has it.
function programs.flock(file, noBlock)
   local lock = call.flock(raise.expect(file, 'string', 'flock arg #1'), noBlock and true or false)
   return lock and raise.adopt(lock, flock_class)
end

return programs
