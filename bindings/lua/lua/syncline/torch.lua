--- Torch7's tensors, when the program has loaded `torch`: by pointer where they are contiguous, all element types.
--
-- The only file that knows Torch7. It needs `torch.typename`, and of tensors and storages `data(true)`, `size`, `isContiguous`,
-- `contiguous` and `copy`; `data` is Torch's own and wants LuaJIT's FFI. From thread to thread objects go by `retain`,
-- `torch.pointer` and `torch.pushudata` where these are there, tables of its classes by `torch.getmetatable`.

local raise = require 'syncline.raise'
local tensor = require 'syncline.tensor'
raise.mark()

local dtypes = {
   Float = 'float32', Double = 'float64', Half = 'float16', Char = 'int8', Short = 'int16', Int = 'int32', Long = 'int64', Byte = 'uint8',
}
local names = {}
for name, dtype in pairs(dtypes) do names[dtype] = 'torch.' .. name .. 'Tensor' end

local adapter = {}

--- Torch, if the program has loaded it. It is never loaded from here.
local function loaded()
   return package.loaded.torch or rawget(_G, 'torch')
end

adapter.loaded = loaded

local function kind_of(value)
   local torch = loaded()
   if not torch or (type(value) ~= 'userdata' and type(value) ~= 'table' and type(value) ~= 'cdata') then return nil end
   local name = torch.typename(value)
   if type(name) ~= 'string' then return nil end
   local element, what = name:match('^torch%.(%a+)(Tensor)$')
   if not element then element, what = name:match('^torch%.(%a+)(Storage)$') end
   return what and dtypes[element] and what, element and dtypes[element]
end

--- Whether the value is a tensor, Torch's or ours.
function adapter.is_tensor(value)
   return tensor.is(value) or kind_of(value) ~= nil
end

--- The numbers of a tensor or storage of Torch's where they lie; nil for anything else.
function adapter.open(value)
   local kind, dtype = kind_of(value)
   if not kind then return nil end
   if kind == 'Storage' then
      local count = value:size()
      return tensor.lend(tonumber(value:data(true)) or 0, dtype, { count }, value)
   end
   if not value:isContiguous() then
      local copy = value:contiguous() -- its own memory; `adapter.returned` brings it back where a call writes
      return tensor.lend(tonumber(copy:data(true)) or 0, dtype, copy:size():totable(), copy)
   end
   local dims = value:nElement() == 0 and { 0 } or value:size():totable()
   return tensor.lend(value:nElement() == 0 and 0 or tonumber(value:data(true)), dtype, dims, value)
end

--- A new tensor of Torch's with these extents; nil if it is not loaded or does not know the type.
function adapter.make(dtype, dims)
   local torch = loaded()
   local name = torch and names[dtype]
   local make = name and torch[name:match('%.(.*)$')]
   if not make then return nil end
   return #dims == 0 and make(1) or make((table.unpack or unpack)(dims))
end

--- Numbers of ours as a tensor of Torch's, if it is loaded and knows their type; else as they are.
function adapter.present(numbers)
   tensor.adopt(numbers)
   local made = adapter.make(numbers:type(), numbers:size())
   if made and numbers:nElement() > 0 then adapter.open(made):copy(numbers) end
   return made or numbers
end

--- What a call writes into: a contiguous tensor itself, else a copy, and a function that brings the copy back.
function adapter.target(value)
   if kind_of(value) == 'Tensor' and not value:isContiguous() then
      local copy = value:contiguous()
      return copy, function() value:copy(copy) return value end
   end
   return value, function() return value end
end

--- Numbers of `from` into the tensor `into`, whichever kind both are.
function adapter.pour(from, into)
   local target, back = adapter.target(into)
   local place = tensor.is(target) and target or adapter.open(target)
   place:copy(tensor.is(from) and from or adapter.open(from))
   return back()
end

--- Retains an object of Torch's for another thread: its class and where it lies; nil where its Torch cannot do that.
function adapter.keep(value)
   local torch = loaded()
   if not (torch and torch.pointer and torch.pushudata and value.retain) then return nil end
   value:retain()
   return torch.typename(value), tonumber(torch.pointer(value))
end

--- The same object in this thread's state, which lets go of it in the end; `again` if others will come for it too.
function adapter.revive(name, address, again)
   local torch = loaded()
   if not (torch and torch.pushudata) then raise.error('ArgumentError: ' .. name .. ': Torch7 is not loaded in this thread') end
   local object = torch.pushudata(address, name)
   if again then object:retain() end
   return object
end

--- The name by which another state finds the class of a table: Torch's, or what the metatable's `metatablename` says.
function adapter.class_name(value)
   local torch = loaded()
   local name = torch and torch.typename(value)
   if not name then
      local meta = debug.getmetatable(value)
      name = type(meta) == 'table' and rawget(meta, 'metatablename')
      if type(name) == 'function' then name = name(value) end
   end
   return type(name) == 'string' and name or nil
end

--- The table with the metatable of that name, if this state knows one: Torch's classes, or what the registry has.
function adapter.with_class(value, name)
   local torch = loaded()
   local meta = torch and torch.getmetatable and torch.getmetatable(name) or debug.getregistry()[name]
   if type(meta) == 'table' then setmetatable(value, meta) end
   return value
end

local native = require 'syncline_native'
raise.from(native.adopt)(adapter.open, adapter.present)

return adapter
