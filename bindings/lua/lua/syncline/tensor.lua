--- The small tensor of programs without Torch7: numbers of one type in row-major order, indexed from 1.
--
--    local t = syncline.FloatTensor(2, 3)      -- zeros
--    t[1][3] = 5                               -- a row shares its matrix's memory
--    print(#t, t:sum(), t:totable()[1][3])     --> 2  5  5
--
-- Methods that change a tensor return it, as Torch's do.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
raise.mark()

local call = raise.family(native, 'tensor_')

local class = {}
local methods = {}
local tensor = {}

--- A native object as a tensor.
function tensor.adopt(object)
   return raise.adopt(object, class)
end

function tensor.is(value)
   return type(value) == 'userdata' and rawget(debug.getmetatable(value) or {}, 'syncline_class') == class
end

-- The first argument; if that is a table, it says everything and nothing may follow.
local function alone(...)
   local first = ...
   if type(first) == 'table' and select('#', ...) > 1 then raise.error('ArgumentError: a table says it all, and more came behind it') end
   return first
end

local function dims_of(...)
   local first = alone(...)
   if type(first) == 'table' then return first end
   local dims, count = { ... }, select('#', ...)
   for i = 1, count do raise.whole(dims[i], 'size ' .. i) end
   if count == 0 then dims[1] = 0 end
   return dims
end

--- A tensor of zeros of these extents, or of the numbers in a table.
function tensor.new(dtype, ...)
   local first = alone(...)
   if type(first) == 'table' then return tensor.adopt(call.of_table(dtype, first)) end
   return tensor.adopt(call.zeros(dtype, dims_of(...)))
end

function tensor.lend(address, dtype, dims, owner)
   return tensor.adopt(call.lend(address, dtype, dims, owner))
end

--- Its extents as a table, or the one asked for.
function methods.size(t, axis)
   local dims = call.dims(t)
   if axis == nil then return dims end
   if dims[axis] == nil then raise.error(('ArgumentError: size: there is no dimension %s of %d'):format(tostring(axis), #dims)) end
   return dims[axis]
end

function methods.dim(t) return #call.dims(t) end

function methods.nElement(t)
   local count = 1
   for _, dim in ipairs(call.dims(t)) do count = count * dim end
   return count
end

--- The type of its numbers: `float32`, `int64`, …
function methods.type(t, dtype)
   if dtype == nil then return call.dtype(t) end
   return tensor.adopt(call.cast(t, dtype))
end

for name, dtype in pairs { float = 'float32', double = 'float64', char = 'int8', short = 'int16', int = 'int32', long = 'int64', byte = 'uint8' } do
   methods[name] = function(t) return tensor.adopt(call.cast(t, dtype)) end
end

function methods.fill(t, number) call.fill(t, number) return t end
function methods.zero(t) call.fill(t, 0) return t end

--- `t:add(3)`, `t:add(other)`, `t:add(0.5, other)`.
function methods.add(t, a, b, c)
   if c ~= nil or (b ~= nil and type(a) ~= 'number') then
      raise.error('ArgumentError: add: a number, a tensor, or a factor and a tensor were expected')
   elseif type(a) ~= 'number' then
      call.add(t, 1, a)
   elseif b == nil then
      call.scale(t, 1, a)
   else
      call.add(t, a, b)
   end
   return t
end

function methods.mul(t, factor) call.scale(t, factor, 0) return t end
function methods.div(t, divisor) call.scale(t, 1 / divisor, 0) return t end

--- Copies the numbers of another tensor, of any type and as many, or of a table.
function methods.copy(t, other)
   if type(other) == 'table' then other = call.of_table(call.dtype(t), other) end
   call.copy(t, other)
   return t
end

function methods.clone(t) return tensor.adopt(call.cast(t, call.dtype(t))) end

--- All numbers added up; Torch's sums along one dimension are not here.
function methods.sum(t, axis)
   if axis ~= nil then raise.error('ArgumentError: sum: only all numbers can be added up, not those of a dimension') end
   return call.sum(t)
end

function methods.totable(t) return call.to_table(t) end

--- The same memory with other extents.
function methods.view(t, ...) return tensor.adopt(call.reshape(t, dims_of(...))) end

--- Place `index` of the first dimension; a row shares its memory.
function methods.select(t, axis, index)
   if axis ~= 1 then raise.error('ArgumentError: select: only the first dimension can be selected from') end
   return t[index]
end

--- `count` places of the first dimension from `first`, sharing their memory.
function methods.narrow(t, axis, first, count)
   if axis ~= 1 then raise.error('ArgumentError: narrow: only the first dimension can be narrowed') end
   return tensor.adopt(call.narrow(t, first, count))
end

function methods.isContiguous() return true end
function methods.contiguous(t) return t end

--- Its bytes as a string, or the bytes of a string of the same length into it.
function methods.string(t, text)
   if text == nil then return call.to_string(t) end
   call.from_string(t, text)
   return t
end

function class.__index(t, key)
   if type(key) == 'number' then
      local value = call.at(t, key)
      if type(value) == 'userdata' then return tensor.adopt(value) end
      return value
   end
   return methods[key]
end

function class.__newindex(t, key, value)
   if type(key) ~= 'number' then raise.error(('ArgumentError: a tensor has no field `%s`'):format(tostring(key))) end
   call.put(t, key, value)
end

function class.__len(t) return call.dims(t)[1] or 0 end

function class.__tostring(t)
   return ('[syncline.Tensor of %s and size %s]'):format(call.dtype(t), table.concat(call.dims(t), 'x'))
end

tensor.adopt(call.zeros('float32', { 0 })) -- what other native functions make is a tensor from the beginning

return tensor
