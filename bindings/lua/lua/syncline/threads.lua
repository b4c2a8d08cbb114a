--- What the threads of one process do and share: map, workqueue, channel, mutex, sharedtable, marshal.
--
-- Every thread has a Lua state of its own. Values are copied between them; tensors and the objects below are shared.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local objects = require 'syncline.objects'
raise.mark()

local call = raise.family(native, '')

local threads = {}

-- A size as torch-ipc takes it. Queues grow by themselves here, so it is only looked at.
local function expect_size(size, name)
   if size ~= nil then raise.expect(size, 'number', name) end
end

-- ---------------------------------------------------------------------------------------------------------------- map

local map_class = objects.class('map', {
   --- Waits for all threads; what each returned, one after the other. Raises what failed.
   join = function(self) return call.map_join(self) end,
   --- Raises what has failed so far and takes it off the map.
   checkErrors = function(self) call.map_check_errors(self) end,
})

local function started(n, init, f, ...)
   return raise.adopt(call.map(n, init, f, ...), map_class)
end

--- Runs f(..., id) on n threads; id is 1 to n.
function threads.map(n, f, ...)
   if type(f) ~= 'function' then raise.error('ArgumentError: map arg #2 expected a function') end
   raise.whole(n, 'map arg #1')
   return started(n, nil, f, ...)
end

--- The same after `init`, a function, Lua source or nil, has run in each thread.
function threads.map_extended(n, init, f, ...)
   if init ~= nil and type(init) ~= 'function' and type(init) ~= 'string' then
      raise.error('ArgumentError: map_extended arg #2 expected a function, a string or nil')
   end
   if type(f) ~= 'function' then raise.error('ArgumentError: map_extended arg #3 expected a function') end
   raise.whole(n, 'map_extended arg #1')
   return started(n, init, f, ...)
end

-- ---------------------------------------------------------------------------------------------------------- workqueue

local workqueue_class = objects.class('workqueue', {
   --- Each argument is an item: a question if this thread made the queue, else an answer.
   write = function(self, ...) call.workqueue_write(self, false, ...) end,
   --- The same; functions may have upvalues, which are copied.
   writeup = function(self, ...) call.workqueue_write(self, true, ...) end,
   --- The next answer if this thread made the queue, else the next question. With `doNotBlock` nothing if there is none.
   read = function(self, doNotBlock) return call.workqueue_read(self, doNotBlock and true or false) end,
   --- Waits until every question is answered; for the thread that made the queue.
   drain = function(self) call.workqueue_drain(self) end,
   --- Drops this handle.
   close = function(self) call.workqueue_close(self) end,
})

--- The queue of that name in this process, or one without a name; and 1 if this call made it, else 0.
function threads.workqueue(name, size, size_increment)
   if name ~= nil then raise.expect(name, 'string', 'workqueue arg #1') end
   expect_size(size, 'workqueue arg #2')
   expect_size(size_increment, 'workqueue arg #3')
   local queue, creator = call.workqueue(name)
   return raise.adopt(queue, workqueue_class), creator
end

-- ------------------------------------------------------------------------------------------------------------ channel

local channel_class = objects.class('channel', {
   --- Each argument is an item. Returns OPEN if they were written; else the channel is CLOSED or DRAINED.
   write = function(self, ...) return call.channel_write(self, ...) end,
   --- The status, and an item if there is one. Waits while the channel is open and empty, unless `nonblocking`.
   read = function(self, nonblocking) return call.channel_read(self, nonblocking and true or false) end,
   --- Nothing can be written any more; readers wake up.
   close = function(self) call.channel_close(self) end,
   closed = function(self) return call.channel_closed(self) end,
   --- Whether it was closed and nothing is left in it.
   drained = function(self) return call.channel_drained(self) end,
   num_items = function(self) return call.channel_num_items(self) end,
})

--- A channel; `capacity`, if given, is how many items it holds before writers wait.
threads.channel = setmetatable({ OPEN = 0, CLOSED = 1, DRAINED = 2 }, {
   __call = function(_, capacity)
      if capacity ~= nil then raise.whole(capacity, 'channel arg #1') end
      return raise.adopt(call.channel(capacity), channel_class)
   end,
})

-- -------------------------------------------------------------------------------------------------------------- mutex

local mutex_class = objects.class('mutex', {
   --- A thread that has it may lock it again; it is free when it was unlocked as often.
   lock = function(self) call.mutex_lock(self) end,
   unlock = function(self) call.mutex_unlock(self) end,
   --- Waits until n threads have called it; all of them give the same n.
   barrier = function(self, n) call.mutex_barrier(self, raise.whole(n, 'barrier arg #1')) end,
})

function threads.mutex() return raise.adopt(call.mutex(), mutex_class) end

-- -------------------------------------------------------------------------------------------------------- sharedtable

local sharedtable_class = {
   __index = function(self, key) return call.sharedtable_get(self, key) end,
   __newindex = function(self, key, value) call.sharedtable_set(self, key, value) end,
   --- All entries, whatever their keys are.
   __len = function(self) return call.sharedtable_len(self) end,
   --- What is in it when the loop begins. Lua 5.1 and LuaJIT do not ask for this.
   __pairs = function(self)
      local keys, values = call.sharedtable_pairs(self)
      local place = 0
      return function()
         place = place + 1
         if keys[place] ~= nil then return keys[place], values[place] end
      end, self, nil
   end,
   __tostring = function() return 'ipc.sharedtable' end,
}
objects.classes.sharedtable = sharedtable_class

--- A table that threads share, with the entries of `tbl`, which is emptied if they are to `move`. Values are copied in and out; a
-- sharedtable inside is shared. `requires` is Lua source; it must be some, and is not needed here.
function threads.sharedtable(tbl, move, requires, size, increment)
   if tbl ~= nil and type(tbl) ~= 'table' then
      raise.error('ArgumentError: sharedtable arg #1 expected to be a table or nil')
   end
   if requires ~= nil then
      local chunk, why = (loadstring or load)(raise.expect(requires, 'string', 'sharedtable arg #3'))
      if not chunk then raise.error('ArgumentError: sharedtable arg #3: ' .. why) end
   end
   expect_size(size, 'sharedtable arg #4')
   expect_size(increment, 'sharedtable arg #5')
   return raise.adopt(call.sharedtable(tbl, move and true or false), sharedtable_class)
end

--- How many kilobytes it uses.
function threads.sharedtable_size(t) return call.sharedtable_size(t) end

-- ------------------------------------------------------------------------------------------------------------ marshal

local marshal_class = objects.class('marshal', {
   --- A copy of the object; from any thread, any number of times.
   read = function(self) return call.marshal_read(self) end,
   close = function(self) call.marshal_close(self) end,
})

--- Lays an object out once, to be read often. With `upval` functions in it may have upvalues, which are copied.
function threads.marshal(obj, upval, size, increment)
   expect_size(size, 'marshal arg #3')
   expect_size(increment, 'marshal arg #4')
   return raise.adopt(call.marshal(obj, upval and true or false), marshal_class)
end

return threads
