-- ipc.map and ipc.map_extended: torch-ipc's own cases with their numbers, and what was fixed since.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'

local function count(...) return select('#', ...) end

test('one thread gets its arguments and returns results', function()
   equal(ipc.map(1, function(y) return y end, 42):join(), 42)
   local a, b, c, id = ipc.map(1, function(...) return ... end, 'hi', 42, { k = 2 }):join()
   equal({ a, b, c, id }, { 'hi', 42, { k = 2 }, 1 })
end)

test('results of three threads come one after the other, in order', function()
   local results = { ipc.map(3, function(mapid) return mapid, 'thread ' .. mapid end):join() }
   equal(results, { 1, 'thread 1', 2, 'thread 2', 3, 'thread 3' })
end)

test('nil is a result, and the id is always the last argument', function()
   local m = ipc.map(2, function(a, b, id) return a, b, id end, nil, 42)
   equal(count(m:join()), 6)
   local a, b, id, a2, b2, id2 = ipc.map(2, function(x, y, n) return x, y, n end, nil, 42):join()
   equal({ a == nil, b, id, a2 == nil, b2, id2 }, { true, 42, 1, true, 42, 2 })
   local ids = { ipc.map(4, function(n) return n end):join() }
   equal(ids, { 1, 2, 3, 4 })
   equal(count(ipc.map(2, function() end):join()), 0)
   equal(count(ipc.map(0, function() return 1 end):join()), 0)
end)

test('a thousand threads', function()
   local sum = 0
   for _, one in ipairs { ipc.map(1000, function() return 1 end):join() } do sum = sum + one end
   equal(sum, 1000)
end)

test('closures are refused in the words of the original', function()
   local x = 42
   local why = raises(function() ipc.map(1, function() return x end) end,
      "Attempt to serialize closure '", ' with ', " upvalues; first is: '", 'Consider using ipc.workqueue.writeup() instead.')
   assert(why:find('test_map.lua:', 1, true), why)
   raises(function() ipc.map(1, print) end, 'attempt to persist a C function')
   raises(function() ipc.map(1, 'return 1') end, 'map arg #2 expected a function')
   raises(function() ipc.map(-1, function() end) end, 'map arg #1')
   raises(function() ipc.map(1e9, function() end) end, 'map arg #1')
   raises(function() ipc.map(1, function() end, coroutine.create(function() end)) end, 'Operation not permitted')
   raises(function() ipc.map(1, function() end, io.stdout) end, 'Invalid argument')
end)

test('globals of the caller are not seen, those of the thread are', function()
   invisible = 56
   equal(ipc.map(1, function() return type(invisible) end):join(), 'nil')
   equal(ipc.map(1, function() visible = 56 return visible end):join(), 56)
   equal(rawget(_G, 'visible'), nil)
   invisible = nil
end)

test('functions and tables with functions travel as byte code', function()
   local twice = function(x) return x * 2 end
   equal(ipc.map(1, function(f, x) return f(x) end, twice, 21):join(), 42)
   local f = ipc.map(1, function() return function(x) return x + 1 end end):join()
   equal(f(41), 42)
end)

test('a failed thread is raised by join, as a string', function()
   local m = ipc.map(2, function(id) if id == 1 then error('this one fails') end return id end)
   local why = raises(function() m:join() end, 'this one fails', 'test_map.lua:')
   assert(not why:find('stack traceback'), why)
   equal(count(m:join()), 0) -- a second join returns nothing
end)

test('where several fail, the last is raised and all are told', function()
   local m = ipc.map(3, function(id) error('thread ' .. id .. ' fails', 0) end)
   local why = raises(function() m:join() end, 'thread 3 fails', 'thread 1 fails', 'thread 2 fails')
   equal(why:find('thread 3 fails', 1, true) < why:find('thread 1 fails', 1, true), true)
end)

test('checkErrors raises what has failed, and join returns the others', function()
   local gate = ipc.channel()
   local m = ipc.map(2, function(gate, id)
      if id == 1 then error('the first one') end
      gate:read() -- the second one ends when it is told to
      return 42
   end, gate)
   local failed, why = false, nil
   while not failed do
      local ok
      ok, why = pcall(m.checkErrors, m)
      failed = not ok
   end
   assert(why:find('the first one', 1, true), why)
   m:checkErrors() -- told once
   gate:close()
   equal({ m:join() }, { 42 })
end)

test('map_extended runs init first, a function or source', function()
   equal(ipc.map_extended(1, function() fourty = 40 end, function(x) return fourty + x end, 2):join(), 42)
   equal({ ipc.map_extended(2, 'base = 41', function(id) return base + id end):join() }, { 42, 43 })
   equal(ipc.map_extended(1, nil, function(x) return x end, 7):join(), 7)
   raises(function() ipc.map_extended(1, function() error('no init') end, function() error('must not run') end):join() end, 'no init')
   raises(function() ipc.map_extended(1, 42, function() end) end, 'map_extended arg #2')
   raises(function() ipc.map_extended(1, nil, nil) end, 'map_extended arg #3')
   raises(function() ipc.map_extended(1, 'this is no Lua', function() end):join() end, 'init')
end)

test('threads have a state of their own, and this library', function()
   local own = ipc.gettid()
   local theirs = { ipc.map(2, function() return require('libipc').gettid() end):join() }
   equal(theirs[1] ~= theirs[2] and theirs[1] ~= own and theirs[2] ~= own, true)
   local nested = ipc.map(1, function() return require('libipc').map(2, function(id) return id * 10 end):join() end)
   equal({ nested:join() }, { 10, 20 })
end)

test('tensors are shared, not copied', function()
   local t = require('syncline').FloatTensor(4):fill(1)
   local back = ipc.map(1, function(t) t:fill(42) return t end, t):join()
   equal(t:sum(), 168)
   back[1] = 0
   equal(t[1], 0)
   local row = require('syncline').FloatTensor(2, 3)
   ipc.map(2, function(m, id) m[id]:fill(id) end, row):join()
   equal(row:totable(), { { 1, 1, 1 }, { 2, 2, 2 } })
end)

test('what fails in a thread is said on stderr, whatever becomes of it', function()
   local words = [[local m = require('libipc').map(1, function() error('said aside', 0) end) repeat until not pcall(m.checkErrors, m)]]
   local child = io.popen(('%s -e "%s" 2>&1'):format(arg[-1], words))
   equal(child:read('*a'), 'said aside\n')
   child:close()
end)

test('a program that has loaded Torch has it in its threads, each with one thread of its own', function()
   local folder = os.tmpname()
   os.remove(folder)
   os.execute('mkdir -m 700 ' .. folder)
   local file = assert(io.open(folder .. '/torch.lua', 'w'))
   file:write('local torch = { typename = function() end } function torch.setnumthreads(n) threads = n end return torch')
   file:close()
   local path = package.path
   package.path = folder .. '/?.lua;' .. path
   require 'torch'
   equal(ipc.map(1, function() return threads end):join(), 1)
   package.loaded.torch, package.path = nil, path
   equal(ipc.map(1, function() return threads == nil and package.loaded.torch == nil end):join(), true)
   os.execute('rm -r ' .. folder)
end)

test('a map that nobody joins leaves nothing that has to be waited for', function()
   ipc.map(2, function() return 1 end)
   collectgarbage()
end)

harness.finish()
