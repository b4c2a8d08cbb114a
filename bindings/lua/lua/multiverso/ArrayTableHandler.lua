--- An array that all workers read and add to.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local whole = require 'syncline.whole'
raise.mark()

local create, get, type = raise.from(native.table_create), whole.get, type

local ArrayTableHandler = {}
ArrayTableHandler.__index = ArrayTableHandler

--- A table of `size` numbers; every worker makes the same tables in the same order, and worker 0's `init_value` counts.
-- `options` may name `dtype`, `updater`, `name` and `staleness`.
function ArrayTableHandler:new(size, init_value, options)
   raise.colon(self, 'ArrayTableHandler:new')
   if size ~= nil then raise.whole(size, 'size') end
   local handle = create(size or 0, nil, init_value, whole.options(options), raise.site())
   return setmetatable({ handle = handle, _size = size or 0 }, self)
end

ArrayTableHandler.New = ArrayTableHandler.new

--- All numbers: a new tensor, or into `out`.
function ArrayTableHandler:get(out)
   if type(self) ~= 'table' then raise.colon(self, 'ArrayTableHandler:get') end
   return get(self.handle, out, true)
end

--- Adds a tensor or a table of as many numbers. Returns at once, or with `sync` when the add is applied. `option` is for
-- the updater: learning_rate, momentum, rho, lambda.
ArrayTableHandler.add = whole.add -- (self, data, sync, option)

return ArrayTableHandler
