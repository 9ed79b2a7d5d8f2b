# What a package has besides programs and libraries: manual pages, completion of shells, grammars of editors; and how CPack
# makes a Debian package of all of it (scripts/package).
include(GNUInstallDirs)

# burstc(1) is printed by burstc; the other pages are those of docs/, where pandoc is there to convert them.
set(pages ${CMAKE_BINARY_DIR}/man/burstc.1)
add_custom_command(OUTPUT ${pages} COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
                   COMMAND burstc --man > ${pages} DEPENDS burstc VERBATIM)
find_program(PANDOC pandoc)
if(PANDOC)
  foreach(page language:burst:5 runtime:burst-program:1 library:burst:3 errors:burst-errors:7)
    string(REPLACE ":" ";" page ${page})
    list(GET page 0 from)
    list(GET page 1 name)
    list(GET page 2 section)
    set(out ${CMAKE_BINARY_DIR}/man/${name}.${section})
    add_custom_command(OUTPUT ${out} COMMAND ${PANDOC} --from gfm --to man --standalone --metadata title=${name} --metadata section=${section}
                               --metadata footer=burstc\ ${PROJECT_VERSION} --output ${out} ${CMAKE_SOURCE_DIR}/docs/${from}.md
                       DEPENDS ${CMAKE_SOURCE_DIR}/docs/${from}.md VERBATIM)
    list(APPEND pages ${out})
  endforeach()
endif()
add_custom_target(man ALL DEPENDS ${pages})
foreach(page ${pages})
  string(REGEX REPLACE ".*\\." "" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

install(FILES completions/burstc.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME burstc)
install(FILES completions/_burstc DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(DIRECTORY editors/vim/ DESTINATION ${CMAKE_INSTALL_DATADIR}/vim/vimfiles)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME burstc)
set(CPACK_PACKAGE_CONTACT "burstc maintainers <maintainers@burstc.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler of verified programs that train Transformers on long sequences")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# What emitted programs are compiled and linked with.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "gcc, libc6-dev, libclang1-19, libclang-common-19-dev, libopenblas-pthread-dev, libjansson-dev, libsodium-dev, zlib1g-dev, libopenmpi-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "nvidia-cuda-toolkit, openmpi-bin")
set(CPACK_STRIP_FILES ON)
include(CPack)
