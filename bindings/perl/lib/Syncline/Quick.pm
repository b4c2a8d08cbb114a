package Syncline::Quick;

# Calls in C, where they could be compiled: the most frequent ones, in their simplest form. Without it the functions in Perl are called, which do everything.

use strict;
use warnings;

use PDL::Core ();
use Syncline::FFI ();

our $VERSION = '0.1.0';

# Whether it is there; SYNCLINE_QUICK=0 goes without.
our $THERE = ($ENV{SYNCLINE_QUICK} // '') ne '0' && eval { require XSLoader; XSLoader::load(__PACKAGE__, $VERSION); 1 } ? 1 : 0;
library(map { Syncline::FFI::address($_) } qw(syncline_table_add syncline_table_get syncline_kvstore_push syncline_kvstore_pull)) if $THERE;

# or_else(NAME, OTHER): the quick function of this name, which calls the one named OTHER where a call is not for it; that one itself where there is none. By its
# name: a thread has an interpreter of its own, with copies of all functions, and would call that of another one otherwise.
sub or_else { my ($name, $other) = @_; no strict 'refs'; return $THERE ? made($name, $other) : sub { goto &$other } }

# table(OBJECT, HANDLE, DATATYPE, DIMS), store(OBJECT, HANDLE, KEYS): from now on calls on the object may be quick.
sub table { my ($self, @facts) = @_; mark_table($self, @facts) if $THERE; return $self }
sub store { my ($self, @facts) = @_; mark_store($self, @facts) if $THERE; return $self }

1;

__END__

=head1 NAME

Syncline::Quick - the most frequent calls, in C

=head1 DESCRIPTION

Not for programs. C<push> and C<pull> of one key and C<add> and C<get> of a whole table, with arrays as PDL makes them, go straight to the library. Everything else takes the way through Perl, and so
does everything where this module was not compiled (it needs a C compiler when the modules are installed) or C<SYNCLINE_QUICK=0> says so.

=cut
