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

-- An object as text. The next finaliser may raise while that is made, and the next, until none is left of those that were found together.
local function text_of(object)
   local ok, words
   for _ = 1, 10000 do
      ok, words = pcall(tostring, object)
      if ok then return words end
   end
   return 'finalisers raise without end'
end

--- Raises what a native function raised: what mlua itself refuses, such as a nil where a tensor was expected, and what a finaliser raised that
-- happened to run meanwhile. Both come as objects with a traceback.
function raise.raised(object)
   local words = text_of(object):gsub('\nstack traceback:.*', ''):gsub('^runtime error: ', ''):gsub('^bad argument', 'ArgumentError: %0')
   -- In words that know nothing of Rust.
   words = words:gsub("error converting Lua (%a+) to userdata %b()", 'an object was expected, and a %1 came\nhint: methods are called with a colon')
      :gsub('userdata is not expected type', 'an object of another kind came')
      :gsub('error converting Lua string to String %((.-)%)', 'a text in UTF-8 was expected: %1'):gsub('error converting Lua (%a+) to String %b()', 'a text was expected, and a %1 came')
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

local function field(of, name) return of[name] end

--- The native functions whose names begin with `prefix`, by the rest of their names; each is made when it is first asked for.
function raise.family(native, prefix)
   return setmetatable({}, {
      __index = function(family, name)
         local ok, f = pcall(field, native, prefix .. name)
         if not ok then raise.raised(f) end -- what is made may be the moment of a finaliser, and that may raise
         family[name] = f and raise.from(f)
         return f and family[name]
      end,
   })
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

--- Refuses a function of a class or an object that was called with a dot, so that its first argument stands where that one belongs.
function raise.colon(class, name)
   if type(class) ~= 'table' then raise.error(('ArgumentError: %s is called with a colon, and a %s came before it'):format(name, type(class))) end
end

--- Refuses what is no whole number; a Lua that has no others drops fractions without a word.
function raise.whole(value, name)
   if raise.expect(value, 'number', name) % 1 ~= 0 then
      raise.error(('ArgumentError: %s: a whole number was expected, and %s came'):format(name, tostring(value)))
   end
   return value
end

--- A table of options, or an empty one for nil. Refuses those that are not among the names that follow: a misspelt one would be ignored.
function raise.options(options, name, ...)
   if options == nil then return {} end
   local known = {}
   for _, option in ipairs { ... } do known[option] = true end
   for option in pairs(raise.expect(options, 'table', name)) do
      if not known[option] then
         raise.error(('ArgumentError: %s: there is no `%s`; there are %s'):format(name, tostring(option), table.concat({ ... }, ', ')))
      end
   end
   return options
end

return raise
