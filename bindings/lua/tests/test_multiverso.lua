-- Multiverso's module, called as its documentation calls it. Runs alone and as a job of any size.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local before = {}
for name in pairs(_G) do before[name] = true end
local mv = require 'multiverso'
for _, module in ipairs {
   'libipc', 'ipc.Tree', 'ipc.LocalhostTree', 'ipc.DiscoveredTree', 'ipc.StaticTree', 'ipc.NullTree', 'ipc.SlurmTree', 'ipc.BackgroundTask',
   'ipc.BackgroundTaskPool', 'ipc.utils',
} do require(module) end
local syncline = require 'syncline'

test('the modules leave no names behind', function()
   for name in pairs(_G) do assert(before[name], name .. ' is global') end
end)

test('calls before init are errors', function()
   raises(function() mv.barrier() end, 'Closed', 'init()', 'multiverso.lua:')
   raises(function() mv.num_workers() end, 'Closed')
   raises(function() mv.ArrayTableHandler:new(4) end, 'Closed')
   equal(mv.last_error().kind, 'Closed')
   raises(function() mv.init('yes') end, 'boolean')
   mv.shutdown() -- nothing to leave
end)

mv.init()
local workers = mv.num_workers()

test('init twice is an error', function()
   raises(function() mv.init() end, 'already in a job')
end)

test('ids and numbers', function()
   equal(mv.worker_id() >= 0 and mv.worker_id() < workers, true)
   equal(mv.server_id(), mv.worker_id())
   equal(mv.is_master_worker(), mv.worker_id() == 0)
end)

test('arrays: two adds of 1..size by every worker, round by round', function()
   local size = 10000
   local values = {}
   for i = 1, size do values[i] = i end
   local tensor = syncline.FloatTensor(values)
   local table_handler = mv.ArrayTableHandler:new(size)
   mv.barrier()
   for round = 1, 10 do
      table_handler:add(values)       -- a table
      table_handler:add(tensor, true) -- a tensor, and waited for
      mv.barrier()
      local got = table_handler:get()
      equal(#got, size)
      for i = 1, size, 997 do equal(got[i], i * round * 2 * workers) end
      equal(got[size], size * round * 2 * workers)
      mv.barrier()
   end
end)

test('arrays: the thousand rounds of a hundred thousand numbers that Multiverso prints', function()
   local size = 100000
   local delta, out = syncline.FloatTensor(size), syncline.FloatTensor(size)
   for i = 1, size do delta[i] = i end
   local handler = mv.ArrayTableHandler:new(size)
   mv.barrier()
   for round = 1, workers == 1 and 1000 or 50 do
      handler:add(delta)
      handler:add(delta)
      mv.barrier()
      handler:get(out)
      for _, i in ipairs { 1, 2, 997, size } do
         local exact = i * round * 2 * workers
         if exact < 2 ^ 24 then equal(out[i], exact) end -- beyond that a float32 has no room for it
      end
      mv.barrier()
   end
end)

test('matrices: whole adds and adds of rows 0 1 5 10', function()
   local num_row, num_col, row_ids = 11, 10, { 0, 1, 5, 10 }
   local values, rows = {}, {}
   for i = 1, num_row * num_col do values[i] = i end
   for r, id in ipairs(row_ids) do
      rows[r] = {}
      for k = 1, num_col do rows[r][k] = id * num_col + k end
   end
   local handler = mv.MatrixTableHandler:New(num_row, num_col)
   mv.barrier()
   for round = 1, 20 do
      handler:add(values)
      handler:add(rows, row_ids)
      mv.barrier()
      local got = handler:get()
      equal(got:size(), { num_row, num_col })
      for id = 0, num_row - 1 do
         local twice = (id == 0 or id == 1 or id == 5 or id == 10) and 2 or 1
         for k = 1, num_col do equal(got[id + 1][k], (id * 10 + k) * round * workers * twice) end
      end
      mv.barrier()
      local some = handler:get(row_ids)
      equal(some:size(), { 4, num_col })
      for r, id in ipairs(row_ids) do
         for k = 1, num_col do equal(some[r][k], (id * 10 + k) * round * workers * 2) end
      end
      mv.barrier()
   end
end)

test('only the initial value of worker 0 counts', function()
   local mine = syncline.FloatTensor(3):fill(mv.worker_id() == 0 and 7 or 100)
   local handler = mv.ArrayTableHandler:new(3, mine)
   equal(handler:get():totable(), { 7, 7, 7 })
   local matrix = mv.MatrixTableHandler:new(2, 2, { { 1, 2 }, { 3, 4 } })
   equal(matrix:get():totable(), { { 1, 2 }, { 3, 4 } })
   mv.barrier()
end)

test('get into a tensor of the caller, in place', function()
   local handler = mv.ArrayTableHandler:new(4, { 1, 2, 3, 4 })
   local out = syncline.FloatTensor(4)
   equal(handler:get(out) == out, true)
   equal(out[4], 4)
   raises(function() handler:get(syncline.DoubleTensor(4)) end, 'ShapeMismatch', 'float64')
   raises(function() handler:get(syncline.FloatTensor(5)) end, 'ShapeMismatch')
   mv.barrier()
end)

test('tables of one number, of none, and of other types', function()
   local one = mv.ArrayTableHandler:new(1)
   one:add({ 2.5 }, true)
   mv.barrier()
   equal(one:get()[1], 2.5 * workers)
   equal(#mv.ArrayTableHandler:new(0):get(), 0)
   equal(#mv.ArrayTableHandler:New():get(), 0)
   equal(mv.MatrixTableHandler:new():get():size(), { 0, 0 })
   local whole = mv.ArrayTableHandler:new(2, nil, { dtype = 'int64', name = 'counts' })
   whole:add({ 1, 2 }, true)
   mv.barrier()
   equal(whole:get():type(), 'int64')
   equal(whole:get()[2], 2 * workers)
   local sgd = mv.ArrayTableHandler:new(1, { 10 }, { updater = 'sgd' })
   sgd:add({ 1 }, true)
   mv.barrier()
   equal(sgd:get()[1], 10 - workers)
   local smooth = mv.ArrayTableHandler:new(1, nil, { updater = 'momentum_sgd' })
   if mv.worker_id() == 0 then smooth:add({ 1 }, true, { momentum = 0.5 }) end
   mv.barrier()
   equal(smooth:get()[1], -0.5)
   local keys = syncline.KVTable { dtype = 'int64' }
   keys:add({ -7, 42, -7 }, { 1, 5, 1 }, true)
   mv.barrier()
   equal(keys:get({ 42, -7, 1 }):totable(), { 5 * workers, 2 * workers, 0 })
   mv.barrier()
end)

test('aggregate sums without servers, and the tree of the job too', function()
   local loss = syncline.DoubleTensor { 1, mv.worker_id() }
   syncline.aggregate(loss)
   equal(loss:totable(), { workers, workers * (workers - 1) / 2 })
   local tree = syncline.tree()
   equal({ tree.nodeIndex, tree.numNodes }, { mv.worker_id() + 1, workers })
   local value, contributors = tree.allReduce(tree.nodeIndex, function(a, b) return a + b end)
   equal({ value, contributors }, { workers * (workers + 1) / 2, workers })
end)

test('bad arguments raise errors with facts, and change nothing', function()
   local handler = mv.ArrayTableHandler:new(4, { 1, 2, 3, 4 }, { name = 'weights' })
   raises(function() handler:add({ 1, 2, 3 }) end, 'ShapeMismatch', 'weights', '3 numbers', '4 are needed')
   raises(function() handler:add() end, 'nil')
   raises(function() handler:add('1234') end, 'string')
   raises(function() handler:add({ 1, 2, 3, {} }) end)
   raises(function() handler:add(print) end, 'function')
   local matrix = mv.MatrixTableHandler:new(2, 2, nil, { name = 'matrix' })
   raises(function() matrix:get({ 2 }) end, 'UnknownKey', '2')
   raises(function() matrix:get({ -1 }) end, 'UnknownKey', '-1')
   raises(function() matrix:get({ 1e300 }) end)
   raises(function() matrix:get({ 0.5 }) end, '0.5')
   raises(function() matrix:get('0') end, 'row_ids')
   raises(function() matrix:add({ { 1, 2 } }, { 0, 1 }) end, 'ShapeMismatch')
   raises(function() mv.ArrayTableHandler:new(-4) end, 'negative')
   raises(function() mv.ArrayTableHandler:new(2 ^ 70) end)
   raises(function() mv.ArrayTableHandler:new('4') end, 'number')
   raises(function() mv.ArrayTableHandler:new(4, nil, { updater = 'magic' }) end, 'magic')
   raises(function() mv.ArrayTableHandler:new(4, { 1 }) end, 'ShapeMismatch')
   raises(function() mv.ArrayTableHandler.add({}, {}) end)
   raises(function() mv.ArrayTableHandler.get({ handle = io.stdout }) end)
   equal(handler:get():totable(), { 1, 2, 3, 4 })
   mv.barrier()
end)

test('tables are saved and loaded', function()
   local folder = os.getenv('TMPDIR') or '/tmp'
   local path = folder .. '/lua-checkpoint-' .. (os.getenv('SYNCLINE_JOB') or require('libipc').getpid())
   local handler = mv.ArrayTableHandler:new(2, { 1, 2 }, { name = 'saved' })
   syncline.save(path)
   mv.barrier()
   handler:add({ 1, 1 }, true)
   mv.barrier()
   syncline.load(path)
   equal(handler:get():totable(), { 1, 2 })
   raises(function() syncline.load(path .. '-not-there') end)
   mv.barrier()
end)

test('calls that differ between workers name both lines', function()
   if workers > 1 then
      raises(function() mv.ArrayTableHandler:new(mv.worker_id() == 0 and 3 or 4) end, 'ContractMismatch', 'multiverso.lua:')
   end
end)

mv.shutdown()

test('after shutdown calls say so', function()
   raises(function() mv.barrier() end, 'Closed', 'left')
end)

harness.finish()
