--- Multiverso's Lua module: `local mv = require 'multiverso'`.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
require 'syncline.torch'
raise.mark()

local open = raise.from(native.open)

local mv = {
   barrier = raise.from(native.barrier),
   shutdown = raise.from(native.shutdown),
   num_workers = raise.from(native.num_workers),
   worker_id = raise.from(native.worker_id),
   server_id = raise.from(native.server_id),
   last_error = raise.only(native.last_error),
   ArrayTableHandler = require 'multiverso.ArrayTableHandler',
   MatrixTableHandler = require 'multiverso.MatrixTableHandler',
}

--- Joins the job; with `sync` every worker's i-th get returns the same.
function mv.init(sync)
   if sync ~= nil then raise.expect(sync, 'boolean', 'init(sync)') end
   open(sync or false)
end

--- Whether this is worker 0, whose initial values count.
function mv.is_master_worker() return mv.worker_id() == 0 end

return mv
