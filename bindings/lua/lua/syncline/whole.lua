--- Gets and adds of whole tables: the short way where tensors are ours and nothing else was said, which is most calls, and the long way otherwise.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local adapter = require 'syncline.torch'
raise.mark()

local add, get, form = raise.from(native.table_add), raise.from(native.table_get), raise.from(native.table_form)
local last_words = raise.only(native.last_words)
-- These answer nil where a call is not for them, and false where it failed. The first two make nothing, so that no finaliser runs in them that could raise.
local get_into, add_all, get_new = native.table_get_into, native.table_add_all, native.table_get_new
-- A megabyte that is copied throws what a call needs out of the near caches, so every table that a call looks something up in costs. Hence names of its own
-- for functions that are called always, here and in the handlers.
local pcall, type = pcall, type
local whole = {}

--- All numbers of a table: a new tensor (a vector of an array), or into `out`.
function whole.get(handle, out, is_array)
   local ok, got
   if out ~= nil then
      got = get_into(handle, out)
      if got then return out end
   elseif not adapter.loaded() then
      ok, got = pcall(get_new, handle, is_array)
      if ok and type(got) == 'userdata' then return got end
      if not ok then raise.raised(got) end
   end
   if got == false then raise.error(last_words()) end
   return whole.get_rows(handle, nil, out, is_array)
end

--- The rows of a table, or all of it where there are no ids. A new tensor of Torch's is made first and written where it lies.
function whole.get_rows(handle, row_ids, out, is_array)
   if out == nil and adapter.loaded() and (row_ids == nil or type(row_ids) == 'table') then
      out = adapter.make(form(handle, row_ids and #row_ids, is_array))
   end
   local target, back = adapter.target(out)
   local got = get(handle, row_ids, target, is_array)
   if out ~= nil then return back() end
   return got
end

--- Adds to all numbers of a handler's table; a method of handlers itself.
function whole.add(handler, data, sync, option)
   if type(handler) ~= 'table' then raise.colon(handler, 'ArrayTableHandler:add') end
   if not sync and option == nil then
      local added = add_all(handler.handle, data)
      if added then return end
      if added == false then raise.error(last_words()) end
   end
   whole.add_rows(handler.handle, data, nil, sync, option)
end

--- Adds to rows, or to all numbers where there are no ids.
function whole.add_rows(handle, data, row_ids, sync, option)
   if sync ~= nil then raise.expect(sync, 'boolean', 'sync') end
   if option ~= nil then raise.options(option, 'option', 'learning_rate', 'momentum', 'rho', 'lambda', 'lambda_') end
   add(handle, data, row_ids, sync or false, option)
end

--- What a new table may be told beside its size.
function whole.options(options)
   return raise.options(options, 'options', 'dtype', 'updater', 'name', 'staleness')
end

return whole
