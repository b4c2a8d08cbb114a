# Replays a story in Perl: perl replay.pl STORY
use strict;
use warnings;

use PDL;
use Scalar::Util qw(blessed);
use Syncline;
use Syncline::KVStore;
use Syncline::Optimizer;

my ($mode, $store, %tables) = ('async');

sub numbers { my ($dtype, @words) = @_; return PDL->new(\@words)->convert(Syncline::Array::type_of($dtype)) }

# n … + m …
sub expected {
    my (@words) = @_;
    my ($plus) = grep { $words[$_] eq '+' } 0 .. $#words;
    return numbers('float64', @words[0 .. $plus - 1]) + Syncline::num_workers() * numbers('float64', @words[$plus + 1 .. $#words]);
}

sub compare {
    my ($got, @words) = @_;
    my $wanted = expected(@words);
    die 'it is ' . $got->flat . ", and should be $wanted\n" unless $got->nelem == $wanted->nelem && ($got->flat == $wanted)->all;
}

sub perform {
    my ($command, $name, @rest) = @_;
    my $waits = $mode eq 'async';
    if ($command eq 'array') {
        my ($updater, $dtype, @values) = @rest;
        $tables{$name} = Syncline::ArrayTable->new(scalar @values, numbers($dtype, @values), dtype => $dtype, updater => $updater, name => $name);
    }
    elsif ($command eq 'matrix') {
        my ($updater, $dtype, $rows, $cols) = @rest;
        $tables{$name} = Syncline::MatrixTable->new($rows, $cols, undef, dtype => $dtype, updater => $updater, name => $name);
    }
    elsif ($command eq 'add')      { $tables{$name}->add(numbers($tables{$name}->dtype, @rest), sync => $waits) }
    elsif ($command eq 'add_rows') { my ($ids, @values) = @rest; $tables{$name}->add(numbers($tables{$name}->dtype, @values), row_ids => [split /,/, $ids], sync => $waits) }
    elsif ($command eq 'get')      { compare($tables{$name}->get, @rest) }
    elsif ($command eq 'get_rows') { my ($ids, @values) = @rest; compare($tables{$name}->get(row_ids => [split /,/, $ids]), @values) }
    elsif ($command eq 'barrier')  { Syncline::barrier() }
    elsif ($command eq 'reduce') {
        my ($equals) = grep { $rest[$_] eq '=' } 0 .. $#rest;
        my ($value) = Syncline::all_reduce(numbers('float64', @rest[0 .. $equals - 1]), $name);
        compare($value, @rest[$equals + 1 .. $#rest]);
    }
    elsif ($command eq 'walk') {
        my ($table, $steps) = ($tables{$name}, @rest);
        my $like = $table->get;
        for my $step (1 .. $steps) {
            my $delta = $like->zeroes;
            $delta .= 0.1 * (Syncline::worker_id() + 1) * $step;
            $table->add($delta, sync => $waits);
            $table->get;
        }
    }
    elsif ($command =~ /\A(?:store|init|push|pull|rule)\z/) { keep($command, $name, @rest) }
    elsif ($command eq 'bits') { print "bits $name ", unpack('H*', ${ $tables{$name}->get->get_dataref }), "\n" }
    else                       { die "what is $command?\n" }
}

# The key-value store that was made last.
sub keep {
    my ($command, $key, @rest) = @_;
    if    ($command eq 'store') { $store = Syncline::KVStore->create($key) }
    elsif ($command eq 'init')  { $store->init($key, numbers('float32', @rest)) }
    elsif ($command eq 'push')  { $store->push($key, numbers('float32', @rest)) }
    elsif ($command eq 'pull')  { compare($store->pull($key), @rest) }
    else                        { $store->set_optimizer(Syncline::Optimizer->create($key, map { split /=/ } @rest)) }
}

my $story = shift // die "perl replay.pl STORY\n";
open my $lines, '<', $story or die "$story: $!\n";
while (my $line = <$lines>) {
    my @words = split ' ', $line;
    next if !@words || $words[0] =~ /\A(?:#|for\z)/;
    my $fine = eval {
        if ($words[0] eq 'mode') { $mode = $words[1]; Syncline::init(sync => $mode eq 'sync') }
        elsif ($words[0] eq 'fails') {
            my (undef, $kind, @call) = @words;
            my $error = eval { perform(@call); 1 } ? die "it worked\n" : $@;
            die "it failed with $error" unless blessed $error && $error->isa("Syncline::Error::$kind");
        }
        else { perform(@words) }
        1;
    };
    die "$story:$.: $@" unless $fine;
}
undef $store;    # before the job that it is of
Syncline::shutdown();
print "replayed\n";
