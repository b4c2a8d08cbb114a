--- Objects that go from one thread's Lua state to another's: their classes by name, and what the native half asks of this state.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local adapter = require 'syncline.torch'
raise.mark()

local objects = {
   --- The metamethods of each kind of object.
   classes = {},
}

--- A class whose objects have `methods`; every one of them is native[prefix_name].
function objects.class(name, methods)
   objects.classes[name] = { __index = methods, __tostring = function() return 'ipc.' .. name end }
   return objects.classes[name]
end

--- Gives an object that came from another state its methods.
local function dress(object, name) return raise.adopt(object, objects.classes[name]) end

raise.from(native.adopt_objects) {
   dress = dress,
   keep = adapter.keep,
   revive = adapter.revive,
   class_name = adapter.class_name,
   with_class = adapter.with_class,
}

return objects
