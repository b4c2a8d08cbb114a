-- A small network learns the exclusive or; all workers train the same weights through one table of Multiverso's. Alone, or
--   syncline run -n 3 luajit examples/lua/xor.lua
-- Plain Lua, so that it runs without Torch7; with it, `params:copy(tbh:get())` is the same loop.

local mv = require 'multiverso'
mv.init()

local hidden, batch, epochs, rate = 20, 128, 1000, 0.5
math.randomseed(1 + mv.worker_id())

-- Weights in one array: hidden × (two inputs and a bias), then the output's hidden weights and its bias.
local size = hidden * 3 + hidden + 1
local initial = {}
for i = 1, size do initial[i] = math.random() * 2 - 1 end
local tbh = mv.ArrayTableHandler:new(size, initial) -- only worker 0's count
local w = tbh:get():totable()

local function forward(x1, x2, h)
   local sum = w[size]
   for j = 1, hidden do
      local at = (j - 1) * 3
      h[j] = 1 / (1 + math.exp(-(w[at + 1] * x1 + w[at + 2] * x2 + w[at + 3])))
      sum = sum + w[hidden * 3 + j] * h[j]
   end
   return 1 / (1 + math.exp(-sum))
end

local h = {}
for _ = 1, epochs do
   local delta = {}
   for i = 1, size do delta[i] = 0 end
   for _ = 1, batch do
      local x1, x2 = math.random(0, 1), math.random(0, 1)
      local error_out = (x1 ~= x2 and 1 or 0) - forward(x1, x2, h)
      for j = 1, hidden do
         local at = (j - 1) * 3
         local error_hidden = error_out * w[hidden * 3 + j] * h[j] * (1 - h[j])
         delta[at + 1] = delta[at + 1] + error_hidden * x1
         delta[at + 2] = delta[at + 2] + error_hidden * x2
         delta[at + 3] = delta[at + 3] + error_hidden
         delta[hidden * 3 + j] = delta[hidden * 3 + j] + error_out * h[j]
      end
      delta[size] = delta[size] + error_out
   end
   for i = 1, size do delta[i] = rate * delta[i] / batch / mv.num_workers() end
   tbh:add(delta)
   mv.barrier()
   w = tbh:get():totable()
   mv.barrier()
end

local right = 0
for _, case in ipairs { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 } } do
   local answer = forward(case[1], case[2], h)
   if (answer > 0.5) == (case[1] ~= case[2]) then right = right + 1 end
   if mv.worker_id() == 0 then print(('%d xor %d = %.3f'):format(case[1], case[2], answer)) end
end
if mv.worker_id() == 0 then print(('%d passed'):format(right)) end
mv.shutdown()
assert(right == 4, 'the network has not learned')
