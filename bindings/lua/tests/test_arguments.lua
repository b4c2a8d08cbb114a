-- Arguments that are wrong are refused, and never overlooked: each call raises, at this file's line, and says what was expected and what came.

local harness = require 'harness'
local test, equal = harness.test, harness.equal
local mv = require 'multiverso'
local ipc = require 'libipc'
local syncline = require 'syncline'
local Pool = require 'ipc.BackgroundTaskPool'
local tree, utils = require 'ipc.NullTree'(), require 'ipc.utils'

mv.init()
local array, matrix, keys = mv.ArrayTableHandler:new(4), mv.MatrixTableHandler:new(3, 2), syncline.KVTable()
local counts = mv.ArrayTableHandler:new(2, nil, { dtype = 'int64' })
local numbers, vector = { 1, 1, 1, 1 }, syncline.FloatTensor { 1, 2, 3, 4 }
local function nothing() end

-- Calls f with a server's client.
local function with_peer(f)
   local server, port = ipc.server()
   local client = ipc.client(port)
   local ok, words = pcall(server.clients, server, 1, f)
   client:close()
   server:close()
   if not ok then error(words, 0) end
end

local refused = {
   -- What is no tensor where one is to be written.
   { 'out', 'a string came', function() array:get('x') end },
   { 'out', 'a table came', function() array:get({}) end },
   { 'out', 'a boolean came', function() array:get(false) end },
   { 'out', 'a number came', function() matrix:get(nil, 5) end },
   { 'out', 'a function came', function() matrix:get({ 0 }, print) end },
   { 'recv', 'no tensor', function() with_peer(function(peer) peer:recv('x') end) end },
   -- Numbers that are not whole.
   { 'size', '2.7 came', function() mv.ArrayTableHandler:new(2.7) end },
   { 'num_row', '1.5 came', function() mv.MatrixTableHandler:new(1.5, 2) end },
   { 'num_col', '0.5 came', function() mv.MatrixTableHandler:new(1, 0.5) end },
   { 'row_ids[2]', '0.5', function() matrix:get({ 0, 0.5 }) end },
   { 'keys[1]', '1.5', function() keys:get({ 1.5 }) end },
   { 'size 2', '2.5 came', function() syncline.FloatTensor(1, 2.5) end },
   { 'size 1', '4.5 came', function() vector:view(4.5) end },
   { 'whole number', '1.5 came', function() return vector[1.5] + 1 end },
   { 'whole number', '1.5 came', function() vector[1.5] = 9 end },
   { 'whole number', '1.5 came', function() return vector:narrow(1, 1.5, 2), 1 end },
   { 'whole number', '1.5 came', function() return syncline.FloatTensor(2, 2):select(1, 1.5), 1 end },
   { 'dimension', '1.5', function() return vector:size(1.5), 1 end },
   { 'map arg #1', '1.5 came', function() ipc.map(1.5, nothing) end },
   { 'map_extended arg #1', '1.5 came', function() ipc.map_extended(1.5, nil, nothing) end },
   { 'channel arg #1', '1.5 came', function() ipc.channel(1.5) end },
   { 'barrier arg #1', '1.5 came', function() ipc.mutex():barrier(1.5) end },
   { 'server(host, port)', '1.5 came', function() ipc.server('127.0.0.1', 1.5) end },
   { 'client(host, port)', '1.5 came', function() ipc.client('127.0.0.1', 1.5) end },
   { 'clients(n, f)', '0.5 came', function() ipc.server():clients(0.5, nothing) end },
   { 'whole number', '1.5 came', function() with_peer(function(peer) peer:id(1.5) end) end },
   { 'whole number', 'a string came', function() with_peer(function(peer) peer:id('x') end) end },
   { 'waitpid arg #1', '1.5 came', function() ipc.waitpid(1.5) end },
   { 'BackgroundTaskPool arg #1', '1.5 came', function() Pool(1.5) end },
   { 'whole number', '1.5 came', function() Pool(1).isDone(1.5) end },
   { 'whole number', 'a string came', function() Pool(1).getResult('1') end },
   { 'whole number', '1.5 came', function() tree.broadcast(1, 1.5) end },
   { 'whole number', 'a string came', function() tree.gather(1, '1') end },
   { 'numNodes', '1.5 came', function() require 'ipc.LocalhostTree'(1, 1.5) end },
   { 'base', '2.5 came', function() require 'ipc.Tree'(1, 1, 2.5) end },
   { 'out of range', '-1', function() require 'ipc.StaticTree'(1, 2, '127.0.0.1', -1, '127.0.0.1', 1) end },
   { 'out of range', '65536', function() require 'ipc.StaticTree'(1, 2, '127.0.0.1', 0, '127.0.0.1', 65536) end },
   { 'whole number', 'a string came', function() require 'ipc.SlurmTree'(nil, 'x') end },
   -- Numbers that those of a table, or of a tensor, cannot hold.
   { 'int64', '0.5', function() counts:add({ 1, 0.5 }) end },
   { 'int64', '1000000000000', function() counts:add({ 1, 1e70 }) end },
   { 'data: number 2 is 0.5', 'int64', function() counts:add(syncline.FloatTensor { 1, 0.5 }) end },
   { 'data: number 1 is 1000', 'int64', function() counts:add(syncline.DoubleTensor { 1e30, 0 }, true) end },
   { 'data: number 1 is inf', 'int64', function() counts:add(syncline.DoubleTensor { 1 / 0, 0 }) end },
   { 'init_value: number 1 is 300', 'uint8', function() mv.ArrayTableHandler:new(1, syncline.LongTensor { 300 }, { dtype = 'uint8' }) end },
   { 'values: number 1 is 0.5', 'int32', function() syncline.KVTable({ dtype = 'int32' }):add({ 1 }, syncline.FloatTensor { 0.5 }) end },
   { 'int32', '0.5', function() syncline.IntTensor { 0.5 } end },
   { 'uint8', '-1', function() syncline.ByteTensor { -1 } end },
   { 'int8', '128', function() syncline.CharTensor(3):fill(128) end },
   { 'int16', '40000', function() syncline.ShortTensor(3)[1] = 40000 end },
   -- A dot where a colon belongs.
   { 'with a colon', 'ArrayTableHandler:get', function() array.get() end },
   { 'with a colon', 'a nil came', function() array.add(numbers) end },
   { 'with a colon', 'ArrayTableHandler:add', function() array.add() end },
   { 'with a colon', 'MatrixTableHandler:add', function() matrix.add(5) end },
   { 'with a colon', 'MatrixTableHandler:get', function() matrix.get() end },
   { 'with a colon', 'a nil came', function() ipc.channel().read() end },
   { 'with a colon', 'a number came', function() vector.fill(1) end },
   { 'object of another kind', '#1', function() ipc.channel().read(ipc.mutex()) end },
   { 'with a colon', 'ArrayTableHandler:new', function() mv.ArrayTableHandler.new(4) end },
   { 'with a colon', 'MatrixTableHandler:new', function() mv.MatrixTableHandler.New(4, 4) end },
   -- Options that nobody knows, and that are none.
   { 'options', 'dtyp', function() mv.ArrayTableHandler:new(4, nil, { dtyp = 'int64' }) end },
   { 'options', 'init', function() mv.MatrixTableHandler:new(4, 4, nil, { init = 1 }) end },
   { 'options', 'a string came', function() mv.ArrayTableHandler:new(4, nil, 'int64') end },
   { 'options', 'size', function() syncline.KVTable { size = 4 } end },
   { 'option', 'lr', function() array:add(numbers, true, { lr = 0.1 }) end },
   { 'option', 'lr', function() array:add(vector, false, { lr = 0.1 }) end },
   { 'option', 'a number came', function() array:add(numbers, false, 0.1) end },
   { 'server(host, port, options)', 'timout', function() ipc.server('127.0.0.1', 0, { timout = 1 }) end },
   { 'server(host, port, options)', 'a string came', function() ipc.server('127.0.0.1', 0, 'token') end },
   { 'client(host, port, options)', 'tokn', function() ipc.client('127.0.0.1', 1, { tokn = 'x' }) end },
   { 'BackgroundTaskPool arg #2', 'closeOnLast', function() Pool(1, { closeOnLast = true }) end },
   { 'closeOnLastTask', 'a number came', function() Pool(1, { closeOnLastTask = 1 }) end },
   -- Truths that are none.
   { 'sync', 'a table came', function() array:add(numbers, { 0 }) end },
   { 'sync', 'a string came', function() matrix:add({ 1, 1 }, { 0 }, 'now') end },
   { 'sync', 'a number came', function() keys:add({ 1 }, { 1 }, 1) end },
   { 'init(sync)', 'a number came', function() mv.init(1) end },
   -- Tables with names where lists belong.
   { 'row_ids', 'without [1]', function() matrix:get({ a = 1 }) end },
   { 'row_ids', 'without [1]', function() matrix:add({}, { a = 1 }) end },
   { 'keys', 'without [1]', function() keys:add({ a = 1 }, {}) end },
   { 'a list of numbers', 'without [1]', function() syncline.FloatTensor(0):copy({ a = 1 }) end },
   { 'env', '`X`', function() ipc.spawn { file = 'printenv', env = { X = '1' } } end },
   { 'args', '`flag`', function() ipc.spawn { file = 'true', args = { 'a', flag = 'x' } } end },
   -- What Torch's calls take beside, and these do not.
   { 'sum', 'dimension', function() return syncline.FloatTensor(2, 3):sum(1), 1 end },
   { 'add', 'factor', function() vector:add(vector, 5, vector) end },
   { 'add', 'factor', function() vector:add(1, vector, 5) end },
   { 'size 2', 'a nil came', function() syncline.FloatTensor(2, nil, 3) end },
   { 'more came', 'table', function() syncline.FloatTensor({ 1 }, 5) end },
   { 'more came', 'table', function() return vector:view({ 2, 2 }, 1), 1 end },
   { 'walkTable arg #2', 'a nil came', function() return utils.walkTable({ 1 }), 1 end },
}

for number, case in ipairs(refused) do
   local name, came, call = case[1], case[2], case[3]
   test(('%d: %s is not overlooked (%s)'):format(number, name, came), function()
      local words = harness.raises(call, 'ArgumentError', name, came)
      assert(words:find('^[^\n]*test_arguments.lua:%d+: '), words)
   end)
end

test('none of them changed anything', function()
   equal(array:get():totable(), { 0, 0, 0, 0 })
   equal(matrix:get():sum(), 0)
   equal(keys:get({ 1 })[1], 0)
   equal(counts:get():totable(), { 0, 0 })
   counts:add(syncline.FloatTensor { 3, -2 }) -- whole, and held
   equal(counts:get():totable(), { 3, -2 })
   equal(vector:totable(), { 1, 2, 3, 4 })
end)

mv.shutdown()
harness.finish()
