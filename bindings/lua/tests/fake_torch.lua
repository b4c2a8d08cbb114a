-- The part of Torch7 that the adapter touches, over LuaJIT's FFI: Torch7 itself is packaged nowhere any more.

local ffi = require 'ffi'

local torch = {}
local ctypes = { Float = 'float', Double = 'double', Char = 'int8_t', Short = 'int16_t', Int = 'int32_t', Long = 'int64_t', Byte = 'uint8_t' }

function torch.typename(object)
   local meta = type(object) == 'table' and getmetatable(object)
   return meta and rawget(meta, '__typename') or nil
end

-- Objects by address, as other threads would ask for them.
local by_address = {}

function torch.pointer(object)
   local address = tonumber(object:data(true))
   by_address[address] = object
   return address
end

function torch.pushudata(address, name)
   assert(torch.typename(by_address[address]) == name)
   return by_address[address]
end

function torch.getmetatable(name) return torch.classes[name] end

torch.classes = {}

-- Sizes are storages of longs in Torch: objects with a method, not tables.
local LongStorage = {}
LongStorage.__index = LongStorage
function LongStorage:totable()
   local copy = {}
   for i, n in ipairs(self.sizes) do copy[i] = n end
   return copy
end

local function make_class(name, ctype)
   local class = { __typename = 'torch.' .. name .. 'Tensor' }
   local methods = {}
   class.__index = function(self, key)
      if type(key) ~= 'number' then return methods[key] end
      if #self.sizes == 1 then return tonumber(self.memory[self.offset + (key - 1) * self.strides[1]]) end
      local sizes, strides = {}, {}
      for i = 2, #self.sizes do sizes[i - 1], strides[i - 1] = self.sizes[i], self.strides[i] end
      return setmetatable({ memory = self.memory, offset = self.offset + (key - 1) * self.strides[1], sizes = sizes, strides = strides }, class)
   end

   local function new(...)
      local sizes, count = { ... }, 1
      if type(sizes[1]) == 'table' then sizes = { #sizes[1] } end
      for _, n in ipairs(sizes) do count = count * n end
      if #sizes == 0 then count = 0 end
      local strides, stride = {}, 1
      for i = #sizes, 1, -1 do
         strides[i] = stride
         stride = stride * sizes[i]
      end
      local made = setmetatable({ memory = ffi.new(ctype .. '[?]', math.max(count, 1)), offset = 0, sizes = sizes, strides = strides }, class)
      if type((...)) == 'table' then for i, n in ipairs((...)) do made.memory[i - 1] = n end end
      return made
   end

   local function each(self, f)
      local function walk(axis, at)
         if axis > #self.sizes then return f(at) end
         for i = 0, self.sizes[axis] - 1 do walk(axis + 1, at + i * self.strides[axis]) end
      end
      if #self.sizes > 0 then walk(1, self.offset) end
   end

   function methods:size(axis)
      if axis then return self.sizes[axis] end
      return setmetatable({ sizes = self.sizes }, LongStorage)
   end
   function methods:nElement()
      local count = #self.sizes > 0 and 1 or 0
      for _, n in ipairs(self.sizes) do count = count * n end
      return count
   end
   function methods:isContiguous()
      local stride = 1
      for i = #self.sizes, 1, -1 do
         if self.strides[i] ~= stride then return false end
         stride = stride * self.sizes[i]
      end
      return true
   end
   function methods:contiguous()
      if self:isContiguous() then return self end
      return new(unpack(self.sizes)):copy(self)
   end
   function methods:data(as_number)
      local pointer = self.memory + self.offset
      return as_number and ffi.cast('intptr_t', pointer) or pointer
   end
   function methods:t()
      return setmetatable({ memory = self.memory, offset = self.offset, sizes = { self.sizes[2], self.sizes[1] },
         strides = { self.strides[2], self.strides[1] } }, class)
   end
   function methods:fill(x) each(self, function(at) self.memory[at] = x end) return self end
   function methods:zero() return self:fill(0) end
   function methods:sum()
      local sum = 0
      each(self, function(at) sum = sum + tonumber(self.memory[at]) end)
      return sum
   end
   function methods:copy(other)
      local numbers = {}
      local from = other
      getmetatable(other).each(from, function(at) numbers[#numbers + 1] = tonumber(from.memory[at]) end)
      local i = 0
      each(self, function(at) i = i + 1 self.memory[at] = numbers[i] end)
      return self
   end
   function methods:add(other)
      local sum = new(unpack(self.sizes)):copy(other)
      local i = 0
      each(self, function(at) self.memory[at] = self.memory[at] + sum.memory[i] i = i + 1 end)
      return self
   end
   -- References are counted here; the real ones also free.
   function methods:retain() rawset(self, 'references', (rawget(self, 'references') or 1) + 1) end
   class.each = each
   torch[name .. 'Tensor'] = new

   local storage = { __typename = 'torch.' .. name .. 'Storage' }
   storage.__index = storage
   function storage:size() return self.count end
   function storage:data(as_number) return as_number and ffi.cast('intptr_t', self.memory + 0) or self.memory end
   function storage:string(text)
      if text == nil then return ffi.string(self.memory, self.count) end
      ffi.copy(self.memory, text, #text)
      return self
   end
   torch[name .. 'Storage'] = function(count) return setmetatable({ memory = ffi.new(ctype .. '[?]', count), count = count }, storage) end
end

for name, ctype in pairs(ctypes) do make_class(name, ctype) end

package.loaded.torch = torch
return torch
