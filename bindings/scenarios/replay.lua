-- Replays a story in Lua: lua replay.lua STORY

local mv = require 'multiverso'
local syncline = require 'syncline'
local tables, workers, mode = {}, 1, 'async'

local function words_of(text)
   local words = {}
   for word in text:gmatch('%S+') do words[#words + 1] = word end
   return words
end

local function numbers(words, from, to)
   local found = {}
   for i = from, to or #words do found[#found + 1] = assert(tonumber(words[i]), words[i]) end
   return found
end

local function ids(text)
   local found = {}
   for id in text:gmatch('[^,]+') do found[#found + 1] = tonumber(id) end
   return found
end

-- n … + m …, from a place on
local function expected(words, from)
   local plus = from
   while words[plus] ~= '+' do plus = plus + 1 end
   local base, each = numbers(words, from, plus - 1), numbers(words, plus + 1)
   for i in ipairs(base) do base[i] = base[i] + workers * each[i] end
   return base
end

local function flat(tensor) return tensor:view(tensor:nElement()) end

local function compare(tensor, wanted)
   local got = flat(tensor)
   assert(#got == #wanted, #got .. ' numbers')
   for i, number in ipairs(wanted) do
      assert(got[i] == number, ('number %d is %s, and should be %s'):format(i, tostring(got[i]), number))
   end
end

-- Rows as the handler wants them: as many numbers as ids have columns.
local commands = {}

function commands.array(w)
   tables[w[2]] = mv.ArrayTableHandler:new(#w - 4, numbers(w, 5), { updater = w[3], dtype = w[4], name = w[2] })
end

function commands.matrix(w)
   tables[w[2]] = mv.MatrixTableHandler:new(tonumber(w[5]), tonumber(w[6]), nil, { updater = w[3], dtype = w[4], name = w[2] })
end

local function add(handler, values, rows)
   if handler._num_row then handler:add(values, rows, mode == 'async') else handler:add(values, mode == 'async') end
end

function commands.add(w) add(tables[w[2]], numbers(w, 3)) end
function commands.add_rows(w) add(tables[w[2]], numbers(w, 4), ids(w[3])) end
function commands.get(w) compare(tables[w[2]]:get(), expected(w, 3)) end
function commands.get_rows(w) compare(tables[w[2]]:get(ids(w[3])), expected(w, 4)) end
function commands.barrier() mv.barrier() end

function commands.reduce(w)
   local equals = 3
   while w[equals] ~= '=' do equals = equals + 1 end
   local value = syncline.DoubleTensor(numbers(w, 3, equals - 1))
   syncline.tree().allReduce(value, w[2])
   compare(value, expected(w, equals + 1))
end

-- What trees do beside reductions: node k brings k times the numbers.
local function times(words, from, factor)
   local found = numbers(words, from)
   for i in ipairs(found) do found[i] = found[i] * factor end
   return found
end

local function root_of(tree, word) return word == 'last' and tree.numNodes or tonumber(word) end

local function by_node(tree, all, words, from, factor)
   for node = 1, tree.numNodes do compare(all[node], times(words, from, node * factor)) end
end

function commands.broadcast(w)
   local tree = syncline.tree()
   local root = root_of(tree, w[2])
   compare(tree.broadcast(syncline.DoubleTensor(times(w, 3, tree.nodeIndex)), root), times(w, 3, root))
end

function commands.gather(w)
   local tree = syncline.tree()
   local root = root_of(tree, w[2])
   local all = tree.gather(syncline.DoubleTensor(times(w, 3, tree.nodeIndex)), root)
   assert((all ~= nil) == (root == tree.nodeIndex), 'what was gathered is at another node')
   if all then by_node(tree, all, w, 3, 1) end
end

function commands.all_gather(w)
   local tree = syncline.tree()
   by_node(tree, tree.allGather(syncline.DoubleTensor(times(w, 2, tree.nodeIndex))), w, 2, 1)
end

function commands.all_to_all(w)
   local tree = syncline.tree()
   local parts = {}
   for node = 1, tree.numNodes do parts[node] = syncline.DoubleTensor(times(w, 2, tree.nodeIndex * node)) end
   by_node(tree, tree.allToAll(parts), w, 2, tree.nodeIndex)
end

function commands.reduce_scatter(w)
   local tree, equals = syncline.tree(), 3
   while w[equals] ~= '=' do equals = equals + 1 end
   local given = numbers(w, 3, equals - 1)
   local all, part = expected(w, equals + 1), {}
   local each, more = math.floor(#all / tree.numNodes), #all % tree.numNodes
   local first = (tree.nodeIndex - 1) * each + math.min(tree.nodeIndex - 1, more)
   for i = 1, each + (tree.nodeIndex <= more and 1 or 0) do part[i] = all[first + i] end
   compare(tree.reduceScatter(syncline.DoubleTensor(given), w[2]), part)
end

function commands.meet() syncline.tree().barrier() end

function commands.walk(w)
   local handler = tables[w[2]]
   local shape = handler:get()
   local delta = flat(shape)
   for step = 1, tonumber(w[3]) do
      delta:fill(0.1 * (mv.worker_id() + 1) * step)
      add(handler, delta)
      handler:get()
   end
end

function commands.bits(w)
   local text = flat(tables[w[2]]:get()):string()
   print(('bits %s %s'):format(w[2], (text:gsub('.', function(c) return ('%02x'):format(c:byte()) end))))
end

-- Channels.
local ipc = require 'libipc'
local channels, states = {}, { open = ipc.channel.OPEN, closed = ipc.channel.CLOSED, drained = ipc.channel.DRAINED }

function commands.channel(w) channels[w[2]] = ipc.channel(w[3] ~= '0' and tonumber(w[3]) or nil) end
-- torch-ipc's queues cannot be told that no more will be asked: its `close` gives a handle back. Whoever answers goes by what is there.
function commands.close(w) if channels[w[2]] then channels[w[2]]:close() end end

function commands.write(w)
   local status = channels[w[2]]:write((table.unpack or unpack)(numbers(w, 4)))
   assert(status == states[w[3]], 'the channel is in state ' .. status)
end

function commands.read(w)
   local status, item = channels[w[2]]:read(true)
   assert(status == states[w[3]], 'the channel is in state ' .. status)
   assert(item == tonumber(w[4] or 'nothing'), tostring(item))
end

-- Workqueues.
local queues = {}

function commands.queue(w) queues[w[2]] = ipc.workqueue() end
function commands.ask(w) queues[w[2]]:write((table.unpack or unpack)(numbers(w, 3))) end
function commands.drain(w) queues[w[2]]:drain() end

function commands.work(w)
   ipc.map(1, function(queue, factor)
      local question = queue:read(true)
      while question ~= nil do
         queue:write(question * factor)
         question = queue:read(true)
      end
   end, queues[w[2]], tonumber(w[3])):join()
end

function commands.answers(w)
   for i, wanted in ipairs(numbers(w, 3)) do
      local answer = queues[w[2]]:read()
      assert(answer == wanted, ('answer %d is %s, and should be %s'):format(i, tostring(answer), wanted))
   end
end

local function run(words) return commands[words[1]](words) end

local line_number = 0
for line in io.lines(arg[1]) do
   line_number = line_number + 1
   local w = words_of(line)
   local ok, why = pcall(function()
      if w[1] == nil or w[1] == '#' or w[1] == 'for' then return end
      if w[1] == 'mode' then
         mode = w[2]
         mv.init(mode == 'sync')
         workers = mv.num_workers()
      elseif w[1] == 'fails' then
         local worked = pcall(run, { (table.unpack or unpack)(w, 3) })
         assert(not worked, 'it worked')
         local kind = syncline.last_error().kind
         assert(kind == w[2], 'it failed with ' .. kind)
      else
         run(w)
      end
   end)
   if not ok then
      io.stderr:write(('%s:%d: %s\n'):format(arg[1], line_number, tostring(why)))
      os.exit(1)
   end
end
mv.shutdown()
print('replayed')
