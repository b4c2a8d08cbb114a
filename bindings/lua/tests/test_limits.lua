-- Nothing leaks over a hundred thousand calls, and no argument whatever ends the interpreter.

local harness = require 'harness'
local test, equal = harness.test, harness.equal
local mv = require 'multiverso'
local ipc = require 'libipc'
local syncline = require 'syncline'
local limits = require 'limits'
local leaks_nothing, fuzz = limits.leaks_nothing, limits.fuzz

mv.init()

local handler = mv.ArrayTableHandler:new(16)
local delta, out, as_table = syncline.FloatTensor(16):fill(1), syncline.FloatTensor(16), {}
for i = 1, 16 do as_table[i] = 0 end
local tree = require('ipc.NullTree')()
local job = syncline.tree()
local server, port = ipc.server()
local client = ipc.client(port)

leaks_nothing('adding a tensor and getting into one', 100000, function() handler:add(delta) handler:get(out) end)
leaks_nothing('adding a table and getting a new tensor', 100000, function() handler:add(as_table) return handler:get()[3] end)
leaks_nothing('a call that fails', 100000, function() pcall(handler.add, handler, { 1 }) end)
leaks_nothing('reducing', 100000, function()
   tree.allReduce(1, math.max)
   job.allReduce({ 1, delta }, 'max')
end)
leaks_nothing('sending and receiving', 50000, function(i)
   client:send({ i, name = 'x' })
   server:recvAny()
end)
leaks_nothing('making and indexing tensors', 100000, function() return syncline.FloatTensor(2, 3)[2]:sum() end)

limits.stays_small('getting a megabyte again and again', 600, function(_, large) return large:get()[1] end, mv.ArrayTableHandler:new(262144))
limits.stays_small('tensors of a megabyte that nobody keeps', 600, function() return syncline.FloatTensor(512, 512):sum() end)

test('what a get returned stays what it is, whatever is got later', function()
   local large = mv.ArrayTableHandler:new(100000)
   local kept = {}
   for round = 1, 200 do
      large:add(syncline.FloatTensor(100000):fill(1))
      local got = large:get()
      if round % 10 == 0 then kept[#kept + 1] = { round, got } end
   end
   for _, pair in ipairs(kept) do equal(pair[2]:sum(), pair[1] * 100000) end
   equal(syncline.FloatTensor(100000):sum(), 0) -- memory that was used before, too
end)

test('the table holds what was added, not more', function()
   equal(handler:get()[1], 120000)
end)

local closed_server = ipc.server()
closed_server:close()
-- A handler of its own: it is a table, and walkTable changes what it is given.
for _, object in ipairs { delta, out, mv.ArrayTableHandler:new(2), client, server, closed_server, tree } do limits.strange[#limits.strange + 1] = object end

for _, name in ipairs { 'size', 'fill', 'add', 'mul', 'copy', 'view', 'select', 'narrow', 'string', 'type', 'totable', 'sum' } do
   local t = syncline.FloatTensor(2, 3)
   fuzz('tensor:' .. name, t[name], t)
   fuzz('tensor.' .. name .. ' of something else', t[name])
end
local fuzzed = mv.MatrixTableHandler:new(3, 2)
for _, name in ipairs { 'add', 'get' } do
   fuzz('table:' .. name, fuzzed[name], fuzzed)
   fuzz('table.' .. name .. ' of something else', fuzzed[name])
end
local keyed = syncline.KVTable()
for _, name in ipairs { 'add', 'get' } do
   fuzz('KVTable:' .. name, keyed[name], keyed)
   fuzz('KVTable.' .. name .. ' of something else', keyed[name])
end
fuzz('ArrayTableHandler:new', mv.ArrayTableHandler.new, mv.ArrayTableHandler)
fuzz('MatrixTableHandler:new', mv.MatrixTableHandler.new, mv.MatrixTableHandler)
fuzz('KVTable', function(_, ...) return syncline.KVTable(...) end, false)
-- Below a file there are no folders: whatever is a path, and a number is one too, writes nothing here.
local function no_path(path) return (type(path) == 'string' or type(path) == 'number') and '/dev/null/' .. path or path end
fuzz('save', function(_, path, ...) return syncline.save(no_path(path), ...) end, false)
fuzz('load', function(_, path, ...) return syncline.load(no_path(path), ...) end, false)
for _, name in ipairs { 'send', 'recv', 'recvAsync', 'close' } do fuzz('client.' .. name .. ' of something else', client[name], false) end
fuzz('client:send', client.send, client)
local closed_client = ipc.client(port)
closed_client:close()
fuzz('client:recv', closed_client.recv, closed_client)
fuzz('client:recvAsync', client.recvAsync, client)
fuzz('server:broadcast', closed_server.broadcast, closed_server)
fuzz('server:clients', closed_server.clients, closed_server)
fuzz('server:recvAny', closed_server.recvAny, closed_server)
for _, name in ipairs { 'allReduce', 'scatter', 'broadcast', 'gather', 'allGather', 'allToAll', 'reduceScatter', 'walkTable' } do
   fuzz('tree.' .. name, function(_, ...) return tree[name](...) end, false)
end
fuzz('aggregate', function(_, ...) return syncline.aggregate(...) end, false)
fuzz('Tensor', function(_, ...) return syncline.Tensor('float32', ...) end, false)

test('after all of it the job still works', function()
   mv.barrier()
   equal(#handler:get(), 16)
end)

mv.shutdown()

-- Everything of a job that was left says so, whatever it is asked, and keeps no memory of the job.
for name, call in pairs {
   ['array:add'] = function() handler:add(delta) end,
   ['array:add and wait'] = function() handler:add(delta, true) end,
   ['array:get'] = function() handler:get() end,
   ['array:get into'] = function() handler:get(out) end,
   ['matrix:add'] = function() fuzzed:add({ 1, 2 }, { 0 }) end,
   ['matrix:get'] = function() fuzzed:get({ 0 }) end,
   ['KVTable:add'] = function() keyed:add({ 1 }, { 2 }) end,
   ['KVTable:get'] = function() keyed:get({ 1 }) end,
   ['a new array'] = function() mv.ArrayTableHandler:new(4) end,
   ['a new matrix'] = function() mv.MatrixTableHandler:new(4, 4) end,
   ['a new KVTable'] = function() syncline.KVTable() end,
   ['tree.allReduce'] = function() job.allReduce(1, 'sum') end,
   ['tree'] = function() syncline.tree() end,
   aggregate = function() syncline.aggregate(delta) end,
   save = function() syncline.save('/dev/null/nowhere') end,
   load = function() syncline.load('/dev/null/nowhere') end,
   barrier = mv.barrier,
   num_workers = mv.num_workers,
   worker_id = mv.worker_id,
} do
   test(name .. ' after shutdown is an error that says so', function()
      for _ = 1, 3 do harness.raises(call, 'Closed') end
      equal(syncline.last_error().kind, 'Closed')
   end)
end
for _, name in ipairs { 'add', 'get' } do
   fuzz('table:' .. name .. ' after shutdown', fuzzed[name], fuzzed)
   fuzz('KVTable:' .. name .. ' after shutdown', keyed[name], keyed)
end
fuzz('ArrayTableHandler:new after shutdown', mv.ArrayTableHandler.new, mv.ArrayTableHandler)

harness.finish()
