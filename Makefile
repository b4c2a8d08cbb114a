# The project's commands. `make` alone lists them. The work is in scripts/ and xtask/; nothing here needs preparing:
# each target sets up what it uses, and is quick when that is done already.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
FUZZ_SECONDS ?= 60
SOAK_RUNS ?= 200
# The long runs: processes killed at random moments with many seeds, and simulated clusters with many more. Optimised, but without what
# link-time optimisation adds: every test would be linked for minutes.
SOAK ?= CARGO_PROFILE_RELEASE_LTO=off SYNCLINE_KILL_RUNS=$(SOAK_RUNS) SYNCLINE_SIM_SEEDS=$(SOAK_RUNS)000 SOAK_RUNS=$(SOAK_RUNS) \
	$(CARGO) nextest run --release --locked --profile soak --run-ignored all -E 'binary(/^(kill|tables_kill|tables_netns|tables_random|collectives_kill|simulated)/) | test(/(^|::)simulated::/) | test(a_requeued_job) | test(every_number_of_ranks_by_every_plan) | test(k7_a_key_of_more_than_two_gib)'
# A process that dies at each of its numbered moments in turn. Release builds have no moments.
SOAK_MOMENTS ?= MORTAL_EVERY=1 $(CARGO) nextest run --locked --profile soak --package syncline-table -E 'test(/(^|::)mortal::/)'

.DEFAULT_GOAL := help
.PHONY: help demo test lint install bench fuzz soak setup clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  variables: PREFIX=%s  FUZZ_SECONDS=%s  SOAK_RUNS=%s  PARTS="rust python …" (make test)\n' '$(PREFIX)' '$(FUZZ_SECONDS)' '$(SOAK_RUNS)'

demo: ## four processes meet and learn handwritten digits, in step and not; tables and links measured
	@scripts/setup --no-frameworks
	@scripts/demo

test: setup ## every test of every language
	@scripts/test $(PARTS)

lint: ## format, lints, the project's own rules, documentation
	@$(CARGO) xtask check

install: ## put command, C library, header, pkg-config file, Lua and Perl modules into PREFIX (/usr/local)
	$(CARGO) build --release --locked --package syncline-cli
	install -D -m 755 "$${CARGO_TARGET_DIR:-target}/release/syncline" "$(DESTDIR)$(PREFIX)/bin/syncline"
	bindings/c/install "$(PREFIX)" "$(DESTDIR)"
	bindings/lua/install "$(DESTDIR)$(PREFIX)"
	bindings/perl/install "$(DESTDIR)$(PREFIX)"

bench: ## latency and bandwidth of every kind of link, and of tables
	@$(CARGO) run --release --locked --quiet --package syncline-cli -- bench link
	@$(CARGO) run --release --locked --quiet --package syncline-cli -- bench table

fuzz: ## feed random bytes to every parser, FUZZ_SECONDS each
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

soak: setup ## the long kill runs, SOAK_RUNS seeds; stores in every layout
	$(SOAK)
	$(SOAK_MOMENTS)
	SYNCLINE_ALL_LAYOUTS=1 .venv/bin/python -m pytest --quiet bindings/python/tests/test_kvstore_jobs.py

setup: ## what test does first: packages, virtual environments, Python package; the demo needs less of it
	@scripts/setup

clean: ## remove everything these commands made in this folder
	rm -rf target fuzz/target bindings/python/wheel-data .venv .cache
