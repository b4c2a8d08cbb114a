--- A tree of one node, which needs nobody.

local trees = require 'syncline.trees'

return function() return trees.of(trees.call.null()) end
