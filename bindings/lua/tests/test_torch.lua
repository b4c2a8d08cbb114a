-- Programs that have loaded Torch7: its tensors come in by pointer and go out as its own. LuaJIT only, as Torch's `data` is.

local harness = require 'harness'
if not pcall(require, 'ffi') then
   harness.finish()
   return
end
local test, equal, raises = harness.test, harness.equal, harness.raises
local torch = require 'fake_torch'

-- Counts what is copied from tensor to tensor.
local native = require 'syncline_native'
local copy, copies = native.tensor_copy, 0
native.tensor_copy = function(...)
   copies = copies + 1
   return copy(...)
end

local mv = require 'multiverso'
local ipc = require 'libipc'
local syncline = require 'syncline'

mv.init()

test('get answers with a FloatTensor, and adds take tensors of any type', function()
   local handler = mv.ArrayTableHandler:new(4, torch.FloatTensor { 1, 2, 3, 4 })
   local got = handler:get()
   equal(torch.typename(got), 'torch.FloatTensor')
   equal({ got[1], got[4], got:nElement() }, { 1, 4, 4 })
   handler:add(torch.FloatTensor { 1, 1, 1, 1 })
   handler:add(torch.DoubleTensor { 1, 1, 1, 1 }, true)
   handler:add(torch.LongTensor { 1, 1, 1, 1 }, true)
   equal(handler:get():sum(), 10 + 12)
   local params = torch.FloatTensor(4)
   equal(handler:get(params) == params, true)
   equal(params:sum(), 22)
   equal(params:copy(handler:get()):sum(), 22) -- the loop of the tutorial
end)

test('a new tensor of Torch\'s is filled where it lies, whole and by rows, and not copied once more', function()
   local array, matrix = mv.ArrayTableHandler:new(2, { 5, 6 }), mv.MatrixTableHandler:new(3, 2, { 1, 2, 3, 4, 5, 6 })
   local empty, long = mv.ArrayTableHandler:new(0), mv.ArrayTableHandler:new(2, { 7, 8 }, { dtype = 'int64' })
   local before = copies
   equal(array:get():sum(), 11)
   equal(matrix:get():size():totable(), { 3, 2 })
   equal(matrix:get({ 2, 0 })[1][2], 6)
   equal(empty:get():nElement(), 0)
   equal({ torch.typename(long:get()), long:get()[2] }, { 'torch.LongTensor', 8 })
   equal(copies, before)
   raises(function() matrix:get({ 3 }) end, 'UnknownKey')
   raises(function() matrix:get('rows') end, 'ArgumentError')
end)

test('matrices, and tensors that are not contiguous', function()
   local matrix = torch.FloatTensor(3, 2)
   for i = 1, 3 do matrix[i]:fill(i) end
   local handler = mv.MatrixTableHandler:new(2, 3, matrix:t())
   local got = handler:get()
   equal({ got[1][1], got[1][3], got[2][3] }, { 1, 3, 3 })
   local out = torch.FloatTensor(3, 2)
   handler:get(nil, out:t()) -- written through the transpose
   equal(out[3]:sum(), 6)
   handler:add(torch.FloatTensor { 1, 1, 1 }, { 1 }, true)
   equal(handler:get({ 1 }):sum(), 9)
   raises(function() handler:add(torch.FloatTensor(4)) end, 'ShapeMismatch')
end)

test('trees reduce them in place', function()
   local tree = require('ipc.NullTree')()
   local t = torch.DoubleTensor { 1, 2 }
   local value = tree.allReduce({ t, 3 }, function(a, b) return a:add(b) end)
   equal(value[1] == t, true)
   equal(tree.scatter(t) == t, true)
   syncline.aggregate(t)
   equal(t:sum(), 3)
   local job = syncline.tree()
   job.allReduce({ t }, 'sum')
   equal(t:sum(), 3)
   local seen
   job.allReduce(torch.FloatTensor { 5 }, function(a) seen = a end)
end)

test('messages: tensors and storages of every type, in place', function()
   local server, port = ipc.server()
   local client = ipc.client(port)
   for _, name in ipairs { 'Float', 'Double', 'Char', 'Short', 'Int', 'Long', 'Byte' } do
      local sent = torch[name .. 'Tensor'] { 1, 2, 3 }
      client:send(sent)
      local got = server:recvAny()
      equal(torch.typename(got), 'torch.' .. name .. 'Tensor')
      equal(got:sum(), 6)
      client:send(sent)
      server:clients(function(peer)
         local target = torch[name .. 'Tensor'](3)
         equal(peer:recv(target) == target, true)
         equal(target:sum(), 6)
      end)
   end
   client:send(torch.ByteStorage(4):string('ping'))
   server:clients(function(peer)
      equal(peer:recv(torch.ByteStorage(4)):string(), 'ping')
      peer:send(torch.ByteStorage(4):string('pong'))
   end)
   raises(function() client:recv(torch.ByteStorage(3)) end, 'ShapeMismatch')
   equal(client:recv(torch.ByteStorage(4)):string(), 'pong')
   client:send({ nested = { torch.FloatTensor { 4 } } })
   equal(server:recvAny().nested[1]:sum(), 4)
   client:send(torch.FloatTensor())
   equal(server:recvAny():nElement(), 0)
   client:close()
   server:close()
end)

test('they go by reference through what threads share, and are retained as often as they are held', function()
   local t, channel = torch.FloatTensor { 1, 2, 3 }, ipc.channel()
   channel:write({ t })
   equal(t.references, 2) -- the channel's
   local _, items = channel:read()
   equal({ items[1] == t, t.references }, { true, 2 }) -- the reader's now
   local m = ipc.marshal(t)
   equal({ m:read() == t, m:read() == t, t.references }, { true, true, 5 }) -- the marshal's and one of each read
end)

test('objects of its classes keep them', function()
   local class = { __typename = 'test.Net' }
   class.__index = class
   function class:size() return #self end
   torch.classes['test.Net'] = class
   local net = ipc.marshal(setmetatable({ 1, 2 }, class)):read()
   equal({ torch.typename(net), net:size() }, { 'test.Net', 2 })
end)

mv.shutdown()
harness.finish()
