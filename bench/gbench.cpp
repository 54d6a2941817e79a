// gbench.cpp - the bodies of gbench.h: Google Benchmark 1.7 and later behind plain C functions.
//
// The library's registry and flags belong to the whole process, and so do the few settings kept here beside them. No C++
// exception leaves this file, except between the library and itself.
#include "gbench.h"

#include "../kernels/base.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <strings.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

struct GbenchRun {
    benchmark::State &state;
    bool skipped;
};

namespace {

struct Settings {
    std::map<std::string, std::string> given; // --benchmark_<name>=<value> by name; "true" where there is no value
    bool out_failed = false, out_of_memory = false;
};

Settings &settings()
{
    static Settings only;
    return only;
}

// ---- what differs between versions of the library: 1.8 has real skips, and iterations instead of a time ----

template <class State, class = void> struct Is18 : std::false_type {};
template <class State> struct Is18<State, std::void_t<decltype(&State::SkipWithMessage)>> : std::true_type {};

template <class State> void skip(State &state, const char *reason)
{
    if constexpr (Is18<State>::value)
        state.SkipWithMessage(reason);
    else
        state.SkipWithError(reason); // 1.7 knows no other way: shown as an error, and never as a result
}

// One iteration a cell. Iterations(1) would do the same, but adds "/iterations:1" to every cell's name.
constexpr const char *one_iteration()
{
    return Is18<benchmark::State>::value ? "--benchmark_min_time=1x" : "--benchmark_min_time=1e-9";
}

// ---- flags ----

constexpr const char PREFIX[] = "--benchmark_";

// The value of a flag: from the command line, else from the environment (the library reads BENCHMARK_<NAME> too).
const char *value_of(const char *name)
{
    auto at = settings().given.find(name);
    if (at != settings().given.end())
        return at->second.c_str();
    std::string variable = "BENCHMARK_";
    for (const char *c = name; *c; c++)
        variable += *c >= 'a' && *c <= 'z' ? static_cast<char>(*c - 'a' + 'A') : *c;
    return std::getenv(variable.c_str());
}

// As the library reads a boolean.
bool is_on(const char *name)
{
    const char *value = value_of(name);
    if (!value)
        return false;
    if (value[0] && !value[1])
        return std::strchr("0fFnN", value[0]) == nullptr;
    return strcasecmp(value, "true") == 0 || strcasecmp(value, "yes") == 0 || strcasecmp(value, "on") == 0;
}

bool is_min_time(const char *value)
{
    char  *end;
    double n = std::strtod(value, &end);
    bool   number = end != value && n >= 0 && std::isfinite(n);
    if (Is18<benchmark::State>::value && number && *end == 'x')
        return n >= 1 && n == std::floor(n) && !end[1];
    if (Is18<benchmark::State>::value && number && *end == 's')
        end++;
    return number && !*end;
}

bool is_positive(const char *value)
{
    char *end;
    long  n = std::strtol(value, &end, 10);
    return end != value && !*end && n >= 1 && n <= 1000000;
}

bool is_format(const char *v) { return !std::strcmp(v, "console") || !std::strcmp(v, "json") || !std::strcmp(v, "csv"); }
bool is_unit(const char *v) { return !std::strcmp(v, "ns") || !std::strcmp(v, "us") || !std::strcmp(v, "ms") || !std::strcmp(v, "s"); }
bool is_text(const char *v) { return *v != '\0'; }

// Where a wrong value makes the library end the process or lose its way, it is refused before.
bool check_values()
{
    static const struct { const char *name; bool (*is_right)(const char *); const char *right; } checks[] = {
        { "format", is_format, "console, json or csv" },
        { "out_format", is_format, "console, json or csv" },
        { "time_unit", is_unit, "ns, us, ms or s" },
        { "color", is_text, "auto, true or false" },
        { "out", is_text, "a file name" },
        { "repetitions", is_positive, "a whole number from 1 to 1000000" },
        { "min_time", is_min_time, Is18<benchmark::State>::value ? "seconds (0.5s) or iterations (10x)" : "seconds (0.5)" },
    };
    for (const auto &check : checks) {
        const char *value = value_of(check.name);
        if (value && !check.is_right(value)) {
            log_info("%s%s=%s: must be %s", PREFIX, check.name, value, check.right);
            return false;
        }
    }
    return true;
}

// The library would end the process if it could not open this.
bool check_out_file()
{
    const char *path = value_of("out");
    if (!path)
        return true;
    bool  existed = access(path, F_OK) == 0;
    FILE *f = std::fopen(path, "ae");
    if (!f) {
        log_info("%sout=%s: cannot be written: %s", PREFIX, path, std::strerror(errno));
        return false;
    }
    std::fclose(f);
    if (!existed)
        unlink(path);
    return true;
}

struct UsageError {};

// Called where the library would print all its flags and exit(0).
void refuse() { throw UsageError(); }

bool hand_over(std::vector<char *> &args)
{
    int count = static_cast<int>(args.size());
    args.push_back(nullptr);
    try {
        benchmark::SetDefaultTimeUnit(benchmark::kMillisecond); // --benchmark_time_unit overrides it
        benchmark::Initialize(&count, args.data(), refuse);
    } catch (const UsageError &) {
        log_info("a %s* flag or BENCHMARK_* variable has a value that Google Benchmark does not know", PREFIX);
        return false;
    }
    if (count > 1) // the library has said why, if the value was at fault
        log_info("%s: Google Benchmark knows no such flag or value", args[1]);
    return count == 1;
}

bool take_flags(int *argc, char **argv)
{
    std::vector<char *> ours{ argv[0] };
    std::string         single = one_iteration();
    int                 kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (std::strncmp(argv[i], PREFIX, sizeof PREFIX - 1) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        ours.push_back(argv[i]);
        std::string flag = argv[i] + sizeof PREFIX - 1;
        size_t      equals = flag.find('=');
        settings().given[flag.substr(0, equals)] = equals == std::string::npos ? "true" : flag.substr(equals + 1);
    }
    *argc = kept;
    argv[kept] = nullptr;
    if (!gbench_user_min_time())
        ours.push_back(&single[0]);
    return check_values() && hand_over(ours) && check_out_file();
}

// ---- the results file ----

// The library never looks whether its file could be written; a full disk would cut it without a word.
template <class Reporter> struct Checked : Reporter {
    using Reporter::Reporter;
    void Finalize() override
    {
        Reporter::Finalize();
        this->GetOutputStream().flush();
        settings().out_failed = !this->GetOutputStream().good();
    }
};

std::unique_ptr<benchmark::BenchmarkReporter> make_file_reporter()
{
    const char *format = value_of("out_format");
    using Console = benchmark::ConsoleReporter;
    if (!value_of("out"))
        return nullptr;
    if (format && std::strcmp(format, "console") == 0)
        return std::make_unique<Checked<Console>>(is_on("counters_tabular") ? Console::OO_Tabular : Console::OO_None);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // announced to go some day, still the only CSV it has
    if (format && std::strcmp(format, "csv") == 0)
        return std::make_unique<Checked<benchmark::CSVReporter>>();
#pragma GCC diagnostic pop
    return std::make_unique<Checked<benchmark::JSONReporter>>();
}

int run_selected(bool quiet)
{
    auto  made = benchmark::CreateDefaultDisplayReporter(); // a plain pointer into the library, or an owning one later on
    auto *display = &*made;
    if (quiet)
        display->SetOutputStream(&std::cerr);
    auto   file = make_file_reporter();
    size_t count = benchmark::RunSpecifiedBenchmarks(display, file.get());
    std::cout.flush();
    if (settings().out_failed) {
        log_info("%sout=%s: could not be written whole; is the disk full?", PREFIX, value_of("out"));
        return -1;
    }
    if (!std::cout.good()) {
        log_info("the results could not be written to standard output");
        return -1;
    }
    return static_cast<int>(count);
}

int say_out_of_memory()
{
    log_info("out of memory in Google Benchmark");
    return -1;
}

// Runs what may allocate on the C++ side; a failure is kept for gbench_run to report.
template <class Action> bool guarded(Action action)
{
    try {
        action();
        return true;
    } catch (const std::exception &) {
        settings().out_of_memory = true;
        return false;
    }
}

} // namespace

bool gbench_init(int *argc, char **argv)
{
    try {
        return take_flags(argc, argv);
    } catch (const std::exception &) {
        say_out_of_memory();
        return false;
    }
}

bool gbench_user_min_time(void) { return value_of("min_time") != nullptr; }

bool gbench_prints_table(void)
{
    const char *format = value_of("format");
    return !format || std::strcmp(format, "console") == 0;
}

bool gbench_list_only(void) { return is_on("list_tests"); }

void gbench_register(const char *name, GbenchFunction *function, void *context)
{
    guarded([=] {
        auto body = [=](benchmark::State &state) {
            GbenchRun run{ state, false };
            function(&run, context);
        };
        benchmark::RegisterBenchmark(name, body)->UseManualTime();
    });
}

int gbench_run(bool quiet)
{
    int count = -1;
    if (!settings().out_of_memory)
        guarded([&] { count = run_selected(quiet); });
    return settings().out_of_memory ? say_out_of_memory() : count;
}

bool gbench_next(GbenchRun *run) { return !run->skipped && run->state.KeepRunning(); }

int64_t gbench_iterations(const GbenchRun *run) { return run->skipped ? 0 : static_cast<int64_t>(run->state.max_iterations); }

void gbench_seconds(GbenchRun *run, double seconds)
{
    if (!std::isfinite(seconds) || seconds < 0) {
        gbench_skip(run, "no time was measured");
        return;
    }
    run->state.SetIterationTime(seconds > 1e-9 ? seconds : 1e-9); // with nothing at all 1.7 would go on for ever
}

void gbench_counter(GbenchRun *run, const char *name, double value)
{
    if (std::isfinite(value)) // the library would write NaN, which is not JSON
        guarded([=] { run->state.counters[name] = value; });
}

void gbench_label(GbenchRun *run, const char *text)
{
    guarded([=] { run->state.SetLabel(text); });
}

void gbench_skip(GbenchRun *run, const char *reason)
{
    if (run->skipped)
        return;
    run->skipped = true;
    if (!guarded([=] { skip(run->state, reason); }))
        run->state.SetIterationTime(1e-9);
}
