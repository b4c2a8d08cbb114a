--- Errors as Lua's users know them: strings that begin with the line of their own call.
--
-- Native functions answer `true` and results, or `false` and words. `raise.from` makes functions of them that raise, and
-- `raise.adopt` gives the objects they return methods.

local raise = {}

local getinfo = debug.getinfo
local ours = {}

--- Marks the calling file as one of ours, whose lines no user wants to read.
function raise.mark()
   ours[getinfo(2, 'S').source] = true
end

raise.mark()

--- Where the user's program stands, as `file:line`.
function raise.site()
   local level = 2
   while true do
      local info = getinfo(level, 'Sl')
      if info == nil then return '?' end
      if info.currentline > 0 and not ours[info.source] then
         return info.short_src .. ':' .. info.currentline
      end
      level = level + 1
   end
end

--- Raises `words` at the user's line.
function raise.error(words)
   error(raise.site() .. ': ' .. words, 0)
end

--- Raises what a native function raised: what mlua itself refuses, such as a nil where a tensor was expected, and what a finaliser raised that
-- happened to run meanwhile. Both come as objects with a traceback.
function raise.raised(object)
   local words = tostring(object):gsub('\nstack traceback:.*', '')
   if words:find('^[^\n]*:%d+: ') then error(words, 0) end -- a function of the user's raised it and said where
   raise.error(words)
end

local function finish(ok, worked, ...)
   if ok and worked then return ... end
   raise.raised(ok and (...) or worked)
end

--- A function that raises what `native` only tells.
function raise.from(native)
   return function(...) return finish(pcall(native, ...)) end
end

--- A function that answers as `native` does, which tells nothing beside its answer.
function raise.only(native)
   return function(...)
      local ok, answer = pcall(native, ...)
      if ok then return answer end
      raise.raised(answer)
   end
end

--- Gives a native object the methods and metamethods of `class`; all objects of its kind have them from then on.
function raise.adopt(object, class)
   local meta = debug.getmetatable(object)
   if rawget(meta, 'syncline_class') ~= class then
      for name, value in pairs(class) do meta[name] = value end
      meta.syncline_class = class
   end
   return object
end

--- Refuses an argument of another type than the one named.
function raise.expect(value, wanted, name)
   if type(value) ~= wanted then
      raise.error(('ArgumentError: %s: a %s was expected, and a %s came'):format(name, wanted, type(value)))
   end
   return value
end

return raise
