-- ipc.mutex, ipc.sharedtable and ipc.marshal: torch-ipc's own cases with their numbers.

local harness = require 'harness'
local test, equal, raises = harness.test, harness.equal, harness.raises
local ipc = require 'libipc'
local syncline = require 'syncline'

test('three threads and this one meet twice, then fill ten thousand elements one after the other', function()
   local mutex, t = ipc.mutex(), syncline.FloatTensor(10000)
   local work = function(mutex, t, id)
      mutex:barrier(4)
      mutex:barrier(4)
      mutex:lock()
      for i = 1, #t do t[i] = id end
      mutex:unlock()
   end
   local m = ipc.map(3, work, mutex, t)
   work(mutex, t, 4)
   m:join()
   local first = t[1]
   equal(first >= 1 and first <= 4, true)
   equal(t:sum(), first * 10000)
end)

test('a mutex is recursive, and only its holder unlocks it', function()
   local mutex = ipc.mutex()
   mutex:lock()
   mutex:lock()
   mutex:unlock()
   local ok, why = ipc.map(1, function(mutex) return pcall(mutex.unlock, mutex) end, mutex):join()
   equal(ok, false)
   assert(why:find('does not hold the mutex', 1, true), why)
   mutex:unlock()
   raises(function() mutex:unlock() end, 'does not hold the mutex')
   raises(function() mutex:barrier(0) end, 'barrier')
   raises(function() mutex:barrier() end, 'barrier arg #1')
   raises(function() mutex:barrier(-1) end, 'barrier')
end)

test('the length of a shared table counts all entries', function()
   equal(#ipc.sharedtable { 2, 3, 4 }, 3)
   equal(#ipc.sharedtable { 1, 2, a = 3, [true] = 4 }, 4)
   equal(#ipc.sharedtable(), 0)
end)

test('moving empties the source', function()
   local source = { 1, 2, x = { y = 1 } }
   local t = ipc.sharedtable(source, true)
   equal(next(source), nil)
   equal({ #t, t[1], t[2], t.x }, { 3, 1, 2, { y = 1 } })
   local kept = { 1 }
   ipc.sharedtable(kept)
   equal(kept, { 1 })
end)

test('values are copied in and out', function()
   local t = ipc.sharedtable()
   t.inner = { 1 }
   t.inner[1] = 2 -- into a copy
   equal(t.inner, { 1 })
   t[1], t[1.5], t['1'], t[-1], t[true] = 'one', 'more', 'text', 'minus', 'truth'
   equal({ t[1.0], t[1.5], t['1'], t[-1], t[true], t[2] == nil, t[nil] == nil }, { 'one', 'more', 'text', 'minus', 'truth', true, true })
   t[1] = nil
   equal({ t[1] == nil, #t }, { true, 5 })
   t.f = function(x) return x + 1 end
   equal(t.f(41), 42)
   raises(function() t[nil] = 1 end, 'index is nil')
   raises(function() t[0 / 0] = 1 end, 'NaN')
   raises(function() t.x = coroutine.create(function() end) end, 'Operation not permitted')
   raises(function() t[{}] = 1 end, 'cannot be a key')
end)

test('a hundred threads write one entry each', function()
   local t = ipc.sharedtable()
   ipc.map(100, function(t, i) t[i] = i end, t):join()
   equal(#t, 100)
   for i = 1, 100 do equal(t[i], i) end
end)

test('ten threads of a hundred locked increments', function()
   local t, mutex = ipc.sharedtable(), ipc.mutex()
   for i = 1, 10 do t[i] = 0 end
   ipc.map(10, function(t, mutex, id)
      for k = 1, 10 do
         for _ = 1, 1 do
            mutex:lock()
            t[k] = t[k] + 1
            mutex:unlock()
         end
      end
      for _ = 1, 90 do
         mutex:lock()
         t.rest = (t.rest or 0) + 1
         mutex:unlock()
      end
   end, t, mutex):join()
   for i = 1, 10 do equal(t[i], 10) end
   equal(t.rest, 900)
end)

test('shared tables nest', function()
   local t = ipc.sharedtable()
   t.inner = ipc.sharedtable { n = 1 }
   t.inner.n = 2
   equal(t.inner.n, 2)
   ipc.map(1, function(t) t.inner.n = t.inner.n + 40 end, t):join()
   equal(t.inner.n, 42)
   t.tensor = syncline.FloatTensor(2)
   t.tensor:fill(3) -- by reference
   equal(t.tensor:sum(), 6)
   t.tensor = nil
   equal(t.tensor, nil)
end)

test('pairs shows what is there, where Lua asks for it', function()
   local t = ipc.sharedtable { a = 1, b = 2, [3] = 'c' }
   if _VERSION == 'Lua 5.1' then return end -- which has no __pairs
   local seen = {}
   for key, value in pairs(t) do
      seen[key] = value
      t[key] = nil -- the loop is over what was there when it began
   end
   equal(seen, { a = 1, b = 2, [3] = 'c' })
   equal(#t, 0)
end)

test('its size grows', function()
   local t = ipc.sharedtable()
   local before = ipc.sharedtable_size(t)
   for i = 1, 1000 do t[i] = ('x'):rep(100) end
   assert(ipc.sharedtable_size(t) > before + 90, ipc.sharedtable_size(t))
   raises(function() ipc.sharedtable_size {} end)
end)

test('a shared table is made of a table', function()
   raises(function() ipc.sharedtable(42) end, 'sharedtable arg #1 expected to be a table or nil')
   raises(function() ipc.sharedtable({}, false, 'no lua at all') end, 'sharedtable arg #3')
   equal(#ipc.sharedtable({ 1 }, false, 'local x = 1', 1024, 1024), 1)
end)

test('marshal once, read often and anywhere', function()
   local m = ipc.marshal { 1, 'two', { three = 3 } }
   local one, other = m:read(), m:read()
   equal(one, { 1, 'two', { three = 3 } })
   one[1] = 0
   equal(other[1], 1)
   equal({ ipc.map(3, function(m) return m:read()[3].three end, m):join() }, { 3, 3, 3 })
end)

test('marshal takes closures when it is told to', function()
   local x = 40
   local function add(y) return x + y end
   raises(function() ipc.marshal(add) end, 'Attempt to serialize closure')
   local m = ipc.marshal(add, true)
   x = 0
   equal(m:read()(2), 42)
   equal(ipc.map(1, function(m) return m:read()(1) end, m):join(), 41)
   equal(ipc.marshal({ f = function() return type(print) end }):read().f(), 'function') -- globals are the reader's
end)

test('a tensor that is marshalled is read twice', function()
   local t = syncline.FloatTensor(3):fill(1)
   local m = ipc.marshal { t }
   local a, b = m:read()[1], m:read()[1]
   t:fill(2)
   t = nil
   m:close()
   collectgarbage()
   equal({ a:sum(), b:sum() }, { 6, 6 })
end)

test('marshal: nil, and after its end', function()
   raises(function() ipc.marshal(nil) end, 'nil')
   local m = ipc.marshal('x')
   m:close()
   m:close()
   raises(function() m:read() end, 'marshal is not open')
end)

harness.finish()
