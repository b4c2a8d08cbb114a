-- The sync server: the i-th get of every worker returns the same.

local harness = require 'harness'
local test, equal = harness.test, harness.equal
local mv = require 'multiverso'

mv.init(true)
local workers = mv.num_workers()

test('a get after j adds holds j adds of every worker', function()
   local handler = mv.ArrayTableHandler:new(5)
   for round = 1, 50 do
      handler:add({ 1, 2, 3, 4, mv.worker_id() })
      local got = handler:get()
      equal(got[4], 4 * round * workers)
      equal(got[5], round * workers * (workers - 1) / 2)
   end
end)

mv.shutdown()
harness.finish()
