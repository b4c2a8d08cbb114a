-- What the tests of limits share: counting what calls leave behind, and calling with arguments that nobody should pass.

local harness = require 'harness'
local limits = {
   -- Arguments that nobody should pass; a test adds its own objects.
   strange = {
      false, true, 0, -1, 1, 3, 0.5, 2 ^ 53, -2 ^ 63, 1e308, 0 / 0, 1 / 0, '', 'x', '\0\255', ('long'):rep(1000), {}, { 1, 2, 3 }, { {} },
      { a = 1 }, tostring, function() end, coroutine.create(function() end), io.stdout,
      setmetatable({}, { __index = function() error('no') end }),
   },
}

-- Kilobytes that this process has in memory.
function limits.resident()
   local file = assert(io.open('/proc/self/statm'))
   local pages = tonumber((file:read('*a'):match('%d+ (%d+)')))
   file:close()
   return pages * 4
end

local function settled()
   collectgarbage()
   collectgarbage()
   return collectgarbage('count'), limits.resident()
end

-- Runs f many times and then many times more: what the first leaves behind may stay, the second must leave nothing.
function limits.leaks_nothing(name, times, f)
   harness.test(name .. ' leaves nothing behind', function()
      for i = 1, times / 5 do f(i) end
      local lua_before, resident_before = settled()
      for i = 1, times do f(i) end
      local lua_after, resident_after = settled()
      -- One object of 16 bytes per call would be 1600 KB.
      assert(lua_after - lua_before < 100, ('Lua holds %.0f KB more'):format(lua_after - lua_before))
      assert(resident_after - resident_before < 1500, ('the process holds %.0f KB more'):format(resident_after - resident_before))
   end)
end

-- Calls f(i, with) often, which leaves a megabyte of garbage each time: the process must not keep all of it until Lua feels like collecting.
function limits.stays_small(name, times, f, with)
   harness.test(name .. ' does not fill memory', function()
      local _, before = settled()
      local most = 0
      for i = 1, times do
         f(i, with)
         most = math.max(most, limits.resident() - before)
      end
      assert(most < 128 * 1024, ('the process held %.0f MB more'):format(most / 1024))
   end)
end

local seed = 42
local function chance(n)
   seed = (seed * 16807) % 2147483647
   return seed % n + 1
end

local function any()
   return limits.strange[chance(#limits.strange + 2)] -- sometimes nil
end

-- Calls f with `first`, or with anything, and up to four strange arguments.
function limits.fuzz(name, f, first)
   harness.test('no argument of ' .. name .. ' ends the interpreter', function()
      for _ = 1, 300 do
         local arguments = { any(), any(), any(), any() }
         local ok, words = pcall(f, first == nil and arguments[4] or first, (table.unpack or unpack)(arguments, 1, chance(4)))
         if not ok then assert(type(words) == 'string', 'an error that is no string') end
      end
   end)
end

return limits
