--- Gets and adds of whole tables: the short way where tensors are ours and nothing else was said, which is most calls, and the long way otherwise.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local adapter = require 'syncline.torch'
raise.mark()

local add, get = raise.from(native.table_add), raise.from(native.table_get)
-- These answer nil where a call is not for them, and with words where it failed. They raise only what a finaliser raised that ran meanwhile.
local get_into, get_new, add_all = native.table_get_into, native.table_get_new, native.table_add_all
local whole = {}

--- All numbers of a table: a new tensor (a vector of an array), or into `out`.
function whole.get(handle, out, is_array)
   local ok, got = true, nil
   if out ~= nil then
      ok, got = pcall(get_into, handle, out)
      if got == true then return out end
   elseif not adapter.loaded() then
      ok, got = pcall(get_new, handle, is_array)
      if ok and type(got) == 'userdata' then return got end
   end
   if not ok then raise.raised(got) end
   if got ~= nil then raise.error(got) end
   local target, back = adapter.target(out)
   got = get(handle, nil, target, is_array)
   if out ~= nil then return back() end
   return got
end

--- Adds to all numbers of a table.
function whole.add(handle, data, sync, option)
   if not sync and option == nil then
      local ok, added = pcall(add_all, handle, data)
      if added == true then return end
      if not ok then raise.raised(added) end
      if added ~= nil then raise.error(added) end
   end
   whole.add_rows(handle, data, nil, sync, option)
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
