-- The small tensor of programs without Torch7.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local syncline = require 'syncline'

test('a new tensor has zeros, extents and a type', function()
   local t = syncline.FloatTensor(2, 3)
   equal(#t, 2)
   equal(t:size(), { 2, 3 })
   equal(t:size(2), 3)
   equal(t:dim(), 2)
   equal(t:nElement(), 6)
   equal(t:type(), 'float32')
   equal(t:totable(), { { 0, 0, 0 }, { 0, 0, 0 } })
   equal(tostring(t), '[syncline.Tensor of float32 and size 2x3]')
end)

test('indices begin at 1, and a row shares the memory of its matrix', function()
   local t = syncline.DoubleTensor { { 1, 2 }, { 3, 4 } }
   equal(t[2][1], 3)
   local row = t[1]
   row[2] = 20
   equal(t[1][2], 20)
   t[2]:copy { 7, 8 }
   equal(t:totable(), { { 1, 20 }, { 7, 8 } })
end)

test('fill, add, multiply, copy, clone, cast', function()
   local t = syncline.FloatTensor(4):fill(2)
   equal(t:add(1):sum(), 12)
   equal(t:add(syncline.FloatTensor { 1, 2, 3, 4 }):totable(), { 4, 5, 6, 7 })
   equal(t:add(0.5, syncline.IntTensor { 2, 2, 2, 2 }):totable(), { 5, 6, 7, 8 })
   local c = t:clone():mul(2)
   equal(c[4], 16)
   equal(t[4], 8)
   equal(t:copy(c):int():type(), 'int32')
   equal(t:view(2, 2)[2][1], 14)
   equal(t:narrow(1, 2, 2):totable(), { 12, 14 })
end)

test('every element type keeps its numbers', function()
   for _, dtype in ipairs { 'float32', 'float64', 'float16', 'bfloat16', 'int8', 'int16', 'int32', 'int64', 'uint8' } do
      local t = syncline.Tensor(dtype, 3)
      t[2] = 5
      equal(t:totable(), { 0, 5, 0 })
      equal(t:sum(), 5)
   end
end)

test('bytes come and go as strings', function()
   local t = syncline.ByteTensor(4):string('ping')
   equal(t:string(), 'ping')
   equal(t[1], 112)
   raises(function() t:string('long') t:string('longer') end, 'ShapeMismatch')
end)

test('what cannot be is an error and changes nothing', function()
   local t = syncline.FloatTensor(2)
   raises(function() return t[3] end, 'there is no place 3', 'test_tensors.lua:')
   raises(function() return t[0] end, 'there is no place 0')
   raises(function() return t[-1] end, 'there is no place -1')
   raises(function() t[1] = 'x' end, 'a number was expected')
   raises(function() t.name = 'x' end, 'no field')
   raises(function() t:copy { 1, 2, 3 } end, 'ShapeMismatch')
   raises(function() t:fill(nil) end)
   raises(function() t:add {} end)
   raises(function() syncline.Tensor('complex', 2) end, 'complex')
   raises(function() syncline.FloatTensor(-1) end, 'negative')
   raises(function() syncline.FloatTensor(2 ^ 40, 2 ^ 20) end)
   raises(function() syncline.FloatTensor(2 ^ 45) end, 'do not fit')
   raises(function() syncline.FloatTensor { { 1, 2 }, { 3 } } end, 'ShapeMismatch')
   raises(function() syncline.FloatTensor { 1, 'two' } end)
   local deep = {}
   deep[1] = deep
   raises(function() syncline.FloatTensor(deep) end, 'contain itself')
   equal(t:totable(), { 0, 0 })
   equal(#syncline.FloatTensor(0), 0)
end)

harness.finish()
