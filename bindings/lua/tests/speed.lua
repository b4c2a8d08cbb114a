-- What a call costs: microseconds of processor time per call, the best of many turns. Sizes may be given: lua speed.lua 1 262144
-- `cargo run --release -p syncline-lua --example call_costs 1 262144` is the same from Rust. With IN_TURNS set, one short turn for each line `go` of its
-- input, another call after any other line: see `bindings/call-costs`.

local mv = require 'multiverso'
local syncline = require 'syncline'
mv.init()

local function timed(times, f)
   local began = os.clock()
   for _ = 1, times do f() end
   return (os.clock() - began) / times * 1e6
end

local function cost(name, times, f)
   timed(math.max(10, times / 10), f)
   if os.getenv('IN_TURNS') then
      -- A few milliseconds, large calls included: what it costs to wake up is then little.
      times = times > 1000 and times / 50 or times / 2
      print(name)
      io.stdout:flush()
      while io.read('*l') == 'go' do
         print(('go %.3f'):format(timed(times, f)))
         io.stdout:flush()
      end
      return
   end
   local best = math.huge
   for _ = 1, 20 do best = math.min(best, timed(times, f)) end
   print(('%-28s %10.2f us'):format(name, best))
end

local sizes = { 1, 16, 1024, 262144, 4194304 }
if arg[1] then
   sizes = {}
   for i, size in ipairs(arg) do sizes[i] = assert(tonumber(size), size) end
end
for _, count in ipairs(sizes) do
   local times = count <= 1024 and 20000 or count <= 262144 and 200 or 10
   local handler = mv.ArrayTableHandler:new(count)
   local delta, out = syncline.FloatTensor(count):fill(1), syncline.FloatTensor(count)
   cost(('get %d floats'):format(count), times, function() handler:get(out) end)
   cost(('add %d floats'):format(count), times, function() handler:add(delta) end)
end
mv.shutdown()
