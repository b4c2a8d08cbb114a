# Every module loads, says what it is for, and is in the manifest.
use strict;
use warnings;
use Test::More;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Find qw(find);
use Pod::Checker ();

my $root = dirname(dirname(abs_path(__FILE__)));
my @files;
find({ no_chdir => 1, wanted => sub { push @files, $_ if /\.pm\z/ } }, "$root/lib");
open my $manifest, '<', "$root/MANIFEST" or die $!;
my %listed = map { chomp; $_ => 1 } <$manifest>;
for my $file (sort @files) {
    my $name = substr $file, length("$root/");
    (my $module = substr $name, 4, -3) =~ s{/}{::}g;
    require_ok($module);
    my $checker = Pod::Checker->new(-warnings => 0);
    open my $nowhere, '>', \my $said;
    $checker->parse_from_file($file, $nowhere);
    is($checker->num_errors, 0, "$module: its documentation") or diag($said);
    ok($listed{$name}, "$name is in the manifest");
}
is(scalar(grep { !-e "$root/$_" } keys %listed), 0, 'everything in the manifest is there');
done_testing;
