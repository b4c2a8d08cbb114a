--- The tasks of a Slurm step. They meet through PMI, or through a file in `path`; field `gpu` tells which GPU is whose.

local raise = require 'syncline.raise'
local trees = require 'syncline.trees'
raise.mark()

return function(path, tasksPerGpu) return trees.of(trees.call.slurm(path, tasksPerGpu or 1)) end
