--- `ipc.utils`: walks nested tables in an order that all nodes share.

local raise = require 'syncline.raise'
local adapter = require 'syncline.torch'
raise.mark()

-- Numbers ascending, or texts in alphabetical order; a table with both has no order that every language shares.
local function sorted_keys(t)
   local keys, kind = {}, nil
   for key in pairs(t) do
      kind = kind or type(key)
      if type(key) ~= kind or (kind ~= 'number' and kind ~= 'string') then
         raise.error('ShapeMismatch: the keys of a table must all be numbers or all be texts, to have an order')
      end
      keys[#keys + 1] = key
   end
   table.sort(keys)
   return keys
end

--- Replaces every leaf of `value` by f(leaf, path), in place; nil keeps the leaf. Returns the value, a lone leaf's result.
local function walkTable(value, f, path, depth)
   if type(value) ~= 'table' or adapter.is_tensor(value) then
      local changed = f(value, path or '')
      if changed == nil then return value end
      return changed
   end
   if (depth or 0) > 100 then raise.error('ShapeMismatch: the table is nested more than 100 deep; does it contain itself?') end
   for _, key in ipairs(sorted_keys(value)) do
      value[key] = walkTable(value[key], f, (path and path .. '.' or '') .. tostring(key), (depth or 0) + 1)
   end
   return value
end

return {
   walkTable = function(value, f)
      return walkTable(value, raise.expect(f, 'function', 'walkTable arg #2'))
   end,
}
