-- The calls of a table from Lua, so many at a time as `measure` says: lua calls.lua 1 16 262144

local mv = require 'multiverso'
local syncline = require 'syncline'
mv.init()

-- Says what the calls are; then, for every number that comes, makes so many and says how long one took, in microseconds of processor time.
local function play(name, calls)
   print(name)
   io.stdout:flush()
   while true do
      local times = tonumber(io.read('*l'))
      if not times then return end
      local began = os.clock()
      calls(times)
      print(('%.4f'):format((os.clock() - began) / times * 1e6))
      io.stdout:flush()
   end
end

for _, size in ipairs(arg) do
   local handler = mv.ArrayTableHandler:new(tonumber(size))
   local delta, out = syncline.FloatTensor(tonumber(size)):fill(1), syncline.FloatTensor(tonumber(size))
   play('table add ' .. size, function(times) for _ = 1, times do handler:add(delta) end end)
   play('table get ' .. size, function(times) for _ = 1, times do handler:get(out) end end)
   play('table get new ' .. size, function(times) for _ = 1, times do handler:get() end end)
end
mv.shutdown()
