-- A small runner: `test(name, f)` runs f now, `harness.finish()` prints the totals and sets the exit status.

local harness = { passed = 0, failed = 0 }

local function show(value)
   if type(value) == 'string' then return ('%q'):format(value) end
   return tostring(value)
end

function harness.test(name, f)
   local ok, words = xpcall(f, debug.traceback)
   if ok then
      harness.passed = harness.passed + 1
   else
      harness.failed = harness.failed + 1
      io.stderr:write('FAILED ', name, '\n', tostring(words), '\n')
   end
end

function harness.equal(got, wanted)
   if type(wanted) == 'table' and type(got) == 'table' then
      for key, value in pairs(wanted) do harness.equal(got[key], value) end
      for key in pairs(got) do if wanted[key] == nil then error('unexpected ' .. tostring(key), 2) end end
   elseif got ~= wanted then
      error(('got %s, wanted %s'):format(show(got), show(wanted)), 2)
   end
end

-- Runs f, which must raise a string that contains every one of the words.
function harness.raises(f, ...)
   local ok, message = pcall(f)
   if ok then error('nothing was raised', 2) end
   if type(message) ~= 'string' then error('raised a ' .. type(message), 2) end
   for _, word in ipairs { ... } do
      if not message:find(word, 1, true) then error(('%q lacks %q'):format(message, word), 2) end
   end
   return message
end

function harness.finish()
   print(('%d passed, %d failed'):format(harness.passed, harness.failed))
   io.stdout:flush()
   if harness.failed > 0 then os.exit(1) end
end

return harness
