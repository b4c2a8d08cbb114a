--- Syncline itself, as far as it has no older name: tensors, the facts of the last error, tables of keys, sums without servers.

local native = require 'syncline_native'
local raise = require 'syncline.raise'
local tensor = require 'syncline.tensor'
local whole = require 'syncline.whole'
require 'syncline.torch'
raise.mark()

local syncline = {
   version = native.version,
   --- What is known of the last error: kind, text, and where somebody is to blame his rank, host and pid.
   last_error = raise.only(native.last_error),
   --- Saves and loads all tables with the states of their updaters; every worker calls it.
   save = raise.from(native.save),
   load = raise.from(native.load),
   --- Leaves the job because this process failed; the others are told why.
   abort = raise.from(native.abort),
   is_tensor = tensor.is,
}

--- A tensor of `dtype` ('float32', 'int64', …): of zeros with these extents, or of the numbers in a table.
function syncline.Tensor(dtype, ...) return tensor.new(dtype, ...) end

for name, dtype in pairs {
   Float = 'float32', Double = 'float64', Half = 'float16', BFloat16 = 'bfloat16', Char = 'int8', Short = 'int16', Int = 'int32',
   Long = 'int64', Byte = 'uint8',
} do
   syncline[name .. 'Tensor'] = function(...) return tensor.new(dtype, ...) end
end

local aggregate = raise.from(native.aggregate)

--- Combines a tensor over all workers, in place, by 'sum' or another operation with a name; every worker calls it.
function syncline.aggregate(t, op)
   local adapter = require 'syncline.torch'
   local target, back = adapter.target(t)
   aggregate(target, op or 'sum')
   return back()
end

local create, add_keys, get_keys = raise.from(native.table_create), raise.from(native.table_add_keys), raise.from(native.table_get_keys)

local KVTable = {}
KVTable.__index = KVTable

--- A table with one number for each whole number that anyone thinks of; zero until somebody adds to it.
function syncline.KVTable(options)
   return setmetatable({ handle = create(nil, nil, nil, whole.options(options), raise.site()) }, KVTable)
end

function KVTable:add(keys, values, sync)
   if sync ~= nil then raise.expect(sync, 'boolean', 'sync') end
   add_keys(self.handle, keys, values, sync or false)
end

function KVTable:get(keys) return get_keys(self.handle, keys) end

local tree_of_job = raise.from(native.tree_of_job)

--- The tree of the job's workers; worker w is node w + 1.
function syncline.tree() return require('syncline.trees').of(tree_of_job()) end

return syncline
