--- A matrix that all workers read and add to, whole or by rows. Row ids are counted from 0, as Multiverso does.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local whole = require 'syncline.whole'
raise.mark()

local create, get, add, type = raise.from(native.table_create), whole.get, whole.add, type

local MatrixTableHandler = {}
MatrixTableHandler.__index = MatrixTableHandler

--- A table of `num_row` × `num_col` numbers; else as ArrayTableHandler:new.
function MatrixTableHandler:new(num_row, num_col, init_value, options)
   raise.colon(self, 'MatrixTableHandler:new')
   if num_row ~= nil then raise.whole(num_row, 'num_row') end
   if num_col ~= nil then raise.whole(num_col, 'num_col') end
   local handle = create(num_row or 0, num_col or 0, init_value, whole.options(options), raise.site())
   return setmetatable({ handle = handle, _num_row = num_row or 0, _num_col = num_col or 0 }, self)
end

MatrixTableHandler.New = MatrixTableHandler.new

--- All rows, or those of the ids in their order: a new tensor, or into `out`.
function MatrixTableHandler:get(row_ids, out)
   if type(self) ~= 'table' then raise.colon(self, 'MatrixTableHandler:get') end
   if row_ids == nil then return get(self.handle, out, false) end
   return whole.get_rows(self.handle, row_ids, out, false)
end

--- Adds to all rows, or one row for each id; ids may come more than once. A refused add changes nothing.
function MatrixTableHandler:add(data, row_ids, sync, option)
   if type(self) ~= 'table' then raise.colon(self, 'MatrixTableHandler:add') end
   if row_ids == nil then return add(self, data, sync, option) end
   return whole.add_rows(self.handle, data, row_ids, sync, option)
end

return MatrixTableHandler
