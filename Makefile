# The usual commands, on a Debian machine with nothing but make, git and a network. The build itself
# is CMake: see CMakePresets.json.

JOBS ?= $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)

.PHONY: help
help:
	@echo 'make demo     install what is needed, build the release, show what rackrail does'
	@echo 'make test     install what is needed, build, run the tests that take minutes in all'
	@echo 'make test-slow  all other tests: long waits, lost workers, PyTorch, format, and what'
	@echo '              make test-sanitized runs'
	@echo 'make test-sanitized  unit tests under the address and undefined-behaviour sanitizers'
	@echo 'make build    the release: build/release/bin/rackrail'
	@echo 'make bench    build and run the benchmarks'
	@echo 'make format   clang-format over all sources'
	@echo 'make tidy     clang-tidy over all sources; any finding is an error'
	@echo 'make clean    remove build/'

.PHONY: dependencies
dependencies:
	@scripts/install-dependencies

.PHONY: build
build: dependencies
	cmake --preset release
	cmake --build --preset release

.PHONY: demo
demo: build
	RACKRAIL_COMMAND=$(CURDIR)/build/release/bin/rackrail scripts/demo

.PHONY: test
test: dependencies
	@scripts/run-tests --build -j $(JOBS) dev:fast

.PHONY: test-slow
test-slow:
	@scripts/install-dependencies clang-19 clang-format libclang-rt-19-dev debootstrap
	@scripts/run-tests --build -j $(JOBS) dev:slow asan:sanitized+fast tsan:threads+fast asan:fuzz

.PHONY: test-sanitized
test-sanitized:
	@scripts/install-dependencies clang-19 libclang-rt-19-dev
	@scripts/run-tests --build -j $(JOBS) asan:sanitized+fast

.PHONY: bench
bench: dependencies
	cmake --preset release
	cmake --build --preset release --target bench
	@for program in build/release/bin/bench/*; do echo "== $$program"; "$$program" || exit 1; done

.PHONY: format
format:
	@scripts/format

.PHONY: tidy
tidy:
	@scripts/run-tests --build -j $(JOBS) tidy:tidy

.PHONY: clean
clean:
	rm -rf build
