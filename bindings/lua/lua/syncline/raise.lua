--- Errors as Lua's users know them: strings that begin with the line of their own call.
--
-- Native functions answer `true` and results, or `false` and words. `raise.from` makes functions of them that raise, and
-- `raise.class` gives the objects they return methods.

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

local function finish(ok, worked, ...)
   if ok and worked then return ... end
   -- What mlua itself refuses, such as a nil where a tensor was expected, comes as an object with a traceback.
   local words = ok and (...) or tostring(worked):gsub('\nstack traceback:.*', '')
   if words:find('^[^\n]*:%d+: ') then error(words, 0) end -- a function of the user's raised it and said where
   raise.error(words)
end

--- A function that raises what `native` only tells.
function raise.from(native)
   return function(...) return finish(pcall(native, ...)) end
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
