# Thin: each target is a line or two. DEPS=0: install nothing. PRESET=smoke|quick|full. JOBS: parallel compiles.
BUILD  ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
DEPS   ?= 1
PRESET ?=
ARGS   ?=

.PHONY: all bench test figures peers deps clean
all: $(BUILD)/Makefile
	@$(MAKE) --no-print-directory -C $(BUILD) -j$(JOBS)

bench: deps all
	@$(BUILD)/batchmark bench $(if $(PRESET),--preset $(PRESET)) $(ARGS)

test: deps all
	@cd $(BUILD) && ctest --output-on-failure -j1 $(ARGS)

figures: deps all
	@test -n "$(RUN)" || { echo "make figures needs RUN=results/<run>"; exit 2; }
	@$(BUILD)/batchmark report $(RUN)

peers: deps all
	@python3 bench/peers/peers.py --binary $(BUILD)/batchmark $(ARGS)

deps:
	@test "$(DEPS)" = 0 || bench/setup.sh

$(BUILD)/Makefile: CMakeLists.txt | deps
	@cmake -S . -B $(BUILD) $(CMAKE_ARGS) >$(BUILD).log 2>&1 || { cat $(BUILD).log; rm -f $(BUILD).log $@; exit 1; }; rm -f $(BUILD).log

clean:
	rm -rf $(BUILD)
